"""A filter on system calls: none that opens a socket, runs a program, or changes a file, whatever the file.

It refuses rather than kills, because libraries try and go on. Numbers are those of the kernel's tables; on other
architectures there is no filter.
"""

import ctypes
import errno
import os
import platform
from typing import Final, NamedTuple

from services.ingestion.parsing.sandbox.kernel import NotPermitted, call


class _Architecture(NamedTuple):
    audit: int  # AUDIT_ARCH_*
    refused: dict[str, int]
    opening: dict[int, int]  # system call: which argument has its flags


_SAME_EVERYWHERE: Final = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "openat2": 437}
_ARCHITECTURES: Final = {
    "x86_64": _Architecture(
        0xC000003E,
        {
            "socket": 41, "connect": 42, "bind": 49, "listen": 50, "socketpair": 53,
            "execve": 59, "execveat": 322, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311,
            "truncate": 76, "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88,
            "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "mknod": 133,
            "mkdirat": 258, "mknodat": 259, "fchownat": 260, "unlinkat": 263, "renameat": 264, "linkat": 265,
            "symlinkat": 266, "fchmodat": 268, "renameat2": 316,
            "pivot_root": 155, "chroot": 161, "mount": 165, "umount2": 166, "unshare": 272, "setns": 308,
            "init_module": 175, "delete_module": 176, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
            "perf_event_open": 298, "open_by_handle_at": 304, "finit_module": 313, "bpf": 321, "userfaultfd": 323,
            **_SAME_EVERYWHERE,
        },
        {2: 1, 257: 2},
    ),
    "aarch64": _Architecture(
        0xC00000B7,
        {
            "socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "connect": 203,
            "execve": 221, "execveat": 281, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271,
            "mknodat": 33, "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38, "truncate": 45,
            "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "renameat2": 276,
            "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "unshare": 97, "setns": 268,
            "kexec_load": 104, "init_module": 105, "delete_module": 106, "add_key": 217, "request_key": 218, "keyctl": 219,
            "perf_event_open": 241, "open_by_handle_at": 265, "finit_module": 273, "bpf": 280, "userfaultfd": 282,
            **_SAME_EVERYWHERE,
        },
        {56: 2},
    ),
}  # fmt: skip

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EPERM
_KILL: Final = 0x80000000
_NUMBER, _AUDIT, _ARGUMENTS = 0, 4, 16  # offsets in seccomp_data
_OTHER_TABLE: Final = 0x40000000  # x32, whose calls have numbers of their own
_CHANGING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_SET_SECCOMP, _FILTER = 22, 2


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def restrict(libc: ctypes.CDLL) -> None:
    """Filter the system calls of this process and its children, for ever. Raises NotPermitted."""
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise NotPermitted(f"no filter is known for {platform.machine()}")
    instructions = _instructions(architecture)
    program = _Program(
        len(instructions), (_Instruction * len(instructions))(*(_Instruction(*fields) for fields in instructions))
    )
    call(libc.prctl, _SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)


def _instructions(architecture: _Architecture) -> list[tuple[int, int, int, int]]:
    """Return the filter as (code, jump if true, jump if false, value)."""
    program = [
        (_LOAD, 0, 0, _AUDIT),
        (_JUMP_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _OTHER_TABLE),
        (_RETURN, 0, 0, _REFUSE),
    ]
    for number in sorted(architecture.refused.values()):
        program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    for number, argument in architecture.opening.items():
        program += [
            (_JUMP_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _ARGUMENTS + 8 * argument),
            (_JUMP_ANY_BIT, 0, 1, _CHANGING),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    return [*program, (_RETURN, 0, 0, _ALLOW)]
