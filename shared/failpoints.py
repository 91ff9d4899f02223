"""Named points where a test can make this process die: `CHATMIND_FAILPOINT=after_tool_before_commit=kill`. Inert without the variable."""

import os
import signal

_ARMED = frozenset(os.environ.get("CHATMIND_FAILPOINT", "").split(","))


def failpoint(name: str) -> None:
    """Kills this process with SIGKILL when the point is armed."""
    if f"{name}=kill" in _ARMED:
        os.kill(os.getpid(), signal.SIGKILL)
