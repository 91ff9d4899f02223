"""Which pages of its document a part of the text stands on."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

PageRange = tuple[int, int]  # first and last, counting from 1


@dataclass(frozen=True, slots=True)
class PageStart:
    """From this offset on the text is of a page, up to the next start; None: of no page that could be named."""

    offset: int
    page: int | None


def pages_between(starts: Sequence[PageStart], start: int, end: int) -> PageRange | None:
    """Return the first and the last page of `start:end`, None where none is known. `starts` are in the order of their offsets."""
    first = max(bisect_right(starts, start, key=lambda one: one.offset) - 1, 0)
    last = bisect_right(starts, max(start, end - 1), key=lambda one: one.offset)
    pages = [one.page for one in starts[first:last] if one.page is not None]
    return (min(pages), max(pages)) if pages else None
