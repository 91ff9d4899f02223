"""What processes hold: open files and memory, against what they held after their first load."""

from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from tests.support.stack import ServiceProcess

MOST = 1.1
"""Of what was held at the start."""
SPARE_FILES = 60
"""Idle connections that pools keep for a while: of clients to a gateway, of runners to models, of all to the database."""
SPARE_MIB = 48.0
"""A process that has just started has still to load what its first requests need."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Open files and resident memory of a process."""

    files: int
    mib: float


def usage_of(services: Mapping[str, ServiceProcess]) -> dict[str, Usage]:
    """By service; those that are not running are left out."""
    return {name: usage for name, service in services.items() if (usage := _usage(service)) is not None}


def _usage(service: ServiceProcess) -> Usage | None:
    try:
        process = psutil.Process(service.pid)
        return Usage(process.num_fds(), process.memory_info().rss / 2**20)
    except psutil.Error:
        return None


def excesses(now: Mapping[str, Usage], start: Mapping[str, Usage]) -> list[str]:
    """Services that hold more than the start explains."""
    found = []
    for name, usage in now.items():
        before = start[name]
        if usage.files > before.files * MOST + SPARE_FILES:
            found.append(f"{name} has {usage.files} open files, {before.files} at the start")
        if usage.mib > before.mib * MOST + SPARE_MIB:
            found.append(f"{name} takes {usage.mib:.0f} MiB, {before.mib:.0f} at the start")
    return found
