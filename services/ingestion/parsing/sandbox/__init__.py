"""What a process that parses may do: compute, and answer.

Applied once to the template, inherited by its children. Each part does what the system permits, and says if it doesn't:

* no network: a namespace of its own without any interface, and no system call that opens a socket;
* no files but the program's own, read-only: Landlock; and, for root, a user that owns nothing;
* nothing is written, created, renamed or run, whatever the part above allows.
"""

import ctypes
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from services.ingestion.parsing.sandbox import landlock, seccomp
from services.ingestion.parsing.sandbox.kernel import NotPermitted, call

_CLONE_NEWNET: Final = 0x40000000
_CLONE_NEWUSER: Final = 0x10000000
_NOBODY: Final = 65534
_CAPABILITY_VERSION: Final = 0x20080522
_NO_NEW_PRIVILEGES: Final = 38
_PROGRAM: Final = Path(__file__).parents[4]
# Where libraries, fonts and character maps are read from after the start.
_SYSTEM: Final = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/fonts",
    "/etc/fonts",
    "/etc/ld.so.cache",
)
_DEVICES: Final = ("/dev/null", "/dev/urandom", "/sys/devices/system/cpu", "/proc/cpuinfo", "/proc/meminfo")


def confine() -> dict[str, bool]:
    """Give up what parsing doesn't need; return for each part whether the system let it be given up."""
    if sys.platform != "linux":
        return dict.fromkeys(("network_namespace", "unprivileged", "landlock", "seccomp"), False)
    readable = _readable()
    libc = ctypes.CDLL(None, use_errno=True)
    steps: dict[str, Callable[[], None]] = {  # in this order: each takes what the next ones don't need
        "network_namespace": lambda: _leave_network(libc),
        "unprivileged": lambda: _leave_privileges(libc, readable),
        "landlock": lambda: landlock.restrict(libc, readable),
        "seccomp": lambda: seccomp.restrict(libc),
    }
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done = dict.fromkeys(steps, False)
    for name, step in steps.items():
        with suppress(NotPermitted, OSError):
            step()
            done[name] = True
    return done


def _readable() -> list[str]:
    packages = {
        str(Path(path).resolve()) for path in sys.path if path and Path(path).is_dir() and Path(path) != _PROGRAM
    }
    program = {str(_PROGRAM / name) for name in ("services", "shared")}
    python = {str(Path(prefix).resolve() / "lib") for prefix in (sys.prefix, sys.base_prefix)}
    return [path for path in sorted(packages | program | python | {*_SYSTEM, *_DEVICES}) if os.path.exists(path)]


def _leave_network(libc: ctypes.CDLL) -> None:
    """Only who may do anything can have a namespace for itself; everybody else has a user namespace with it, if allowed."""
    try:
        call(libc.unshare, _CLONE_NEWNET)
    except NotPermitted:
        call(libc.unshare, _CLONE_NEWUSER | _CLONE_NEWNET)


def _leave_privileges(libc: ctypes.CDLL, readable: list[str]) -> None:
    """Become a user that owns nothing, if root, and unless the program is hidden from such a user; give up all capabilities."""
    if os.geteuid() == 0 and all(_is_open_to_all(Path(path)) for path in readable):
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)  # the structures of linux/capability.h
    call(libc.capset, header, (ctypes.c_uint32 * 6)())


def _is_open_to_all(path: Path) -> bool:
    if not path.stat().st_mode & stat.S_IROTH:
        return False
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
