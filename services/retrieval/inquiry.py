"""A question on its way through the stages of a search."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from services.retrieval.ports import Scope, Target
from services.retrieval.relevance import ScoreRange
from shared.contracts.questions import SearchKnowledge


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question with what is looked for: each wording with its terms, the question itself first, and the target of each.

    `ranges` are the score ranges of the knowledge bases.
    """

    question: SearchKnowledge
    scope: Scope
    wordings: Sequence[tuple[str, Sequence[str]]]
    targets: Sequence[Target]
    ranges: Mapping[UUID, ScoreRange]


@dataclass(slots=True)
class Progress:
    """Milliseconds by stage (one that is passed again adds up), when the asker stops waiting, and what had to be done without."""

    ends: float = math.inf
    since: float = field(default_factory=time.perf_counter)
    ms: dict[str, float] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)

    def passed(self, stage: str) -> None:
        now = time.perf_counter()
        self.ms[stage] = round(self.ms.get(stage, 0.0) + (now - self.since) * 1000, 2)
        self.since = now

    def degrade(self, code: str) -> None:
        if code not in self.degraded:
            self.degraded.append(code)

    def seconds(self, share: float) -> float | None:
        """A share of the seconds that are left; None: as long as it takes."""
        return None if math.isinf(self.ends) else max(0.0, share * (self.ends - time.monotonic()))
