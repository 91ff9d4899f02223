"""What a citation mark looks like, and where a Markdown text is code."""

import re
from dataclasses import dataclass

_CLOSING = {"[": "]", "【": "】", "［": "］"}
OPENINGS = frozenset(_CLOSING)
_MAX_CHARS = 48  # between the brackets
_MAX_RANGE = 20  # numbers that a range such as [1-5] may stand for

_NUMBER = r"[0-9０-９]{1,5}"
_COMMA, _DASH = r",，、;；", r"\-–—~～"
_BODY = re.compile(rf" ?({_NUMBER}(?: ?[{_COMMA}{_DASH}] ?{_NUMBER})*) ?")
_PARTS = re.compile(rf"[{_COMMA}]")
_RANGE = re.compile(rf"[{_DASH}]")
_BODY_CHARS = re.compile(rf"[0-9０-９{_COMMA}{_DASH} ]*")


@dataclass(frozen=True, slots=True)
class Mark:
    """Brackets around numbers. `text` is the whole of it."""

    text: str
    numbers: tuple[int, ...]

    def with_numbers(self, numbers: list[int]) -> str:
        """The mark with these numbers only."""
        return f"{self.text[0]}{', '.join(map(str, numbers))}{self.text[-1]}"


def find_mark(text: str, at: int) -> Mark | None:
    """The mark that begins at an opening bracket. None when there is none, or none yet: see `may_become_mark`."""
    end = _body_end(text, at)
    if text[end : end + 1] != _CLOSING[text[at]]:
        return None
    body = _BODY.fullmatch(text, at + 1, end)
    numbers = _numbers(body[1]) if body else None
    return Mark(text[at : end + 1], numbers) if numbers else None


def may_become_mark(text: str, at: int) -> bool:
    """Whether the text ends inside of what can be a mark."""
    return _body_end(text, at) == len(text)


def _body_end(text: str, at: int) -> int:
    body = _BODY_CHARS.match(text, at + 1, at + 2 + _MAX_CHARS)
    return body.end() if body and body.end() <= at + 1 + _MAX_CHARS else at


def _numbers(body: str) -> tuple[int, ...] | None:
    """Each number once; None for zero, for what is no rising range, and for a long one."""
    numbers: list[int] = []
    for part in _PARTS.split(body):
        bounds = [int(bound) for bound in _RANGE.split(part)]
        first, last = bounds[0], bounds[-1]
        if len(bounds) > 2 or not 0 < first <= last <= first + _MAX_RANGE:
            return None
        numbers.extend(range(first, last + 1))
    return tuple(dict.fromkeys(numbers))


class CodeSpans:
    """Follows a Markdown text and knows whether it is inside of code: `inline`, or a block between fences.

    An inline span ends at the end of its line at the latest, so that a lone backtick doesn't make code of all that follows.
    """

    def __init__(self) -> None:
        self._fence = ""  # the run of characters that opened the block
        self._inline = ""
        self._on_opening_line = False

    @property
    def inside(self) -> bool:
        return bool(self._fence or self._inline)

    def take_run(self, run: str, *, at_line_start: bool) -> None:
        """A whole run of backticks or tildes."""
        if self._fence:
            # ```code``` on one line is inline, however many backticks it has.
            closes = at_line_start if not self._on_opening_line else run == self._fence
            if closes and run.startswith(self._fence):
                self._fence = ""
        elif self._inline:
            self._inline = "" if run == self._inline else self._inline
        elif at_line_start and len(run) >= 3:
            self._fence, self._on_opening_line = run, True
        elif run[0] == "`":
            self._inline = run

    def take_line_end(self) -> None:
        self._inline, self._on_opening_line = "", False
