"""Landlock: the kernel refuses files outside the given directories, also to a process that has been taken over.

Numbers and structures are those of linux/landlock.h; an older kernel knows fewer rights, by the version that it tells.
"""

import ctypes
import os
from collections.abc import Iterable
from typing import Final

from services.ingestion.parsing.sandbox.kernel import call

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on all architectures
_TELL_VERSION: Final = 1
_PATH_BENEATH: Final = 1

_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_FILE_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 5: 16}  # how many rights there are from this version on
_TCP: Final = 0b11  # bind and connect, from version 4 on
_SCOPES: Final = 0b11  # abstract sockets and signals of others, from version 6 on


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def restrict(libc: ctypes.CDLL, readable: Iterable[str]) -> None:
    """Let this process and its children read what is in the given directories and files, and nothing else, for ever.

    Raises NotPermitted.
    """
    version = call(libc.syscall, _CREATE_RULESET, None, 0, _TELL_VERSION)
    handled = _Ruleset(
        handled_access_fs=(1 << max(count for since, count in _FILE_RIGHTS.items() if since <= version)) - 1,
        handled_access_net=_TCP if version >= 4 else 0,
        scoped=_SCOPES if version >= 6 else 0,
    )
    size = ctypes.sizeof(handled) if version >= 6 else 16 if version >= 4 else 8
    ruleset = call(libc.syscall, _CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(size), 0)
    try:
        for path in readable:
            _allow(libc, ruleset, path)
        call(libc.syscall, _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = _READ_FILE | _EXECUTE | (_READ_DIR if os.path.isdir(path) else 0)
        rule = _PathBeneath(allowed_access=rights, parent_fd=descriptor)
        call(libc.syscall, _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
