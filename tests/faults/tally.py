"""What a case counted, in the form of Jepsen's reports."""

from dataclasses import dataclass, field
from typing import Any


class NotHere(Exception):
    """This machine can't try the case; the message says why."""


@dataclass
class Tally:
    """Counters of one case. It has failed when anything was lost, duplicated or unexpected."""

    attempted: int = 0  # requests that a client began
    acknowledged: int = 0  # those that were accepted
    ok: int = 0  # accepted ones that ended as they should
    lost: int = 0  # accepted ones without an end
    duplicated: int = 0
    recovered: int = 0  # ended as they should although a fault hit them
    resume_seconds: list[float] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def unexpected(self) -> int:
        return len(self.surprises)

    @property
    def failed(self) -> bool:
        return bool(self.lost or self.duplicated or self.unexpected)

    def surprise(self, what: str) -> None:
        """Something that must not happen."""
        self.surprises.append(what)

    def require(self, condition: object, otherwise: str) -> None:
        """A surprise unless the condition is true."""
        if not condition:
            self.surprise(otherwise)

    def note(self, **figures: Any) -> None:
        """A figure for the report; the last of a name counts."""
        self.notes.update(figures)

    def percentile(self, fraction: float) -> float | None:
        """Of the seconds to resumption, by nearest rank; None without any."""
        ordered = sorted(self.resume_seconds)
        if not ordered:
            return None
        return round(ordered[min(int(fraction * len(ordered)), len(ordered) - 1)], 2)
