"""Calling the kernel through the C library."""

import ctypes
import os
from collections.abc import Callable
from typing import Any


class NotPermitted(Exception):
    """The system doesn't let this process confine itself in this way."""


def call(function: Callable[..., int], *arguments: Any) -> int:
    """Return what the function returns. Raises NotPermitted for -1."""
    result = function(*arguments)
    if result == -1:
        raise NotPermitted(os.strerror(ctypes.get_errno()))
    return result
