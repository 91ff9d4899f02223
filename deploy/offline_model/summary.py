"""A summary made of the text's own sentences."""

import math
from collections import Counter

from deploy.offline_model.passages import passages

_MAX_SENTENCES = 5
_MAX_CHARS = 600


def summarise(text: str) -> str:
    """The sentences that hold most of what the text speaks of most, in its order."""
    found = [passage for passage in passages(text) if not passage.header and "\n" not in passage.text]
    counts = Counter(word for passage in found for word in passage.words)

    def weight(position: int) -> float:
        words = found[position].words
        # The square root keeps long sentences from winning by length alone, the last term prefers early ones.
        return sum(counts[word] for word in words) / math.sqrt(len(words) or 1) + 1 / (1 + position)

    kept: list[int] = []
    size = 0
    for position in sorted(range(len(found)), key=weight, reverse=True):
        size += len(found[position].text)
        if kept and (size > _MAX_CHARS or len(kept) == _MAX_SENTENCES):
            break
        kept.append(position)
    return "\n".join(found[position].text for position in sorted(kept)) or text.strip()[:_MAX_CHARS]
