"""Sparing searches the wait for an embedding model that is away."""

import time
from collections.abc import Callable, Sequence


class RestingModels:
    """Embedding models that failed lately: searches do without them at once, until one search every `seconds` tries again."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: dict[str, float] = {}

    def any_of(self, models: Sequence[str]) -> bool:
        """Whether one of these rests now. Who is told that none does is to try, and to say how it went."""
        now = self._clock()
        if any(self._until.get(model, now) > now for model in models):
            return True
        for model in models:  # those who ask while this one tries needn't wait as well
            if model in self._until:
                self._until[model] = now + self._seconds
        return False

    def failed(self, models: Sequence[str]) -> None:
        until = self._clock() + self._seconds
        self._until |= dict.fromkeys(models, until)

    def worked(self, models: Sequence[str]) -> None:
        for model in models:
            self._until.pop(model, None)
