"""Which passages an answer cites; marks that point to nothing are taken out while the text streams (docs/decisions/0021-citations.md)."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from services.agent_runner.marks import OPENINGS, CodeSpans, Mark, find_mark, may_become_mark
from services.agent_runner.steps import StoredMessage

Hit = Mapping[str, Any]
Stance = Literal["free", "behind_word", "behind_code", "never"]

# A number that is neither low nor near one that a passage has is a year or a status code.
_LOW = 99
_NEAR = 10
_MAX_GAP = 8
_PLAIN = re.compile(r"[^\[【［`~ \t\n]+")
_RUN = re.compile(r"`+|~+")


def hits_of(messages: Iterable[StoredMessage]) -> list[dict[str, Any]]:
    """All hits that tools have brought, each with its number n."""
    return [hit for message in messages if message.role == "tool" for hit in message.metadata.get("hits", [])]


class CitationReader:
    """Reads an answer as it comes and passes its text on, without the marks that point to none of the `hits`.

    What has been passed on never changes: only what may be a mark that is dropped is held back, with the blanks before it. The same text
    comes out however it is cut into pieces. Without `judges` (nothing to cite and nothing that could be searched) it comes out as it is.
    """

    def __init__(self, hits: Iterable[Hit], *, judges: bool = True) -> None:
        self._hits = {hit["n"]: hit for hit in hits}
        self._judges = judges or bool(self._hits)
        self._code = CodeSpans()
        self._held = ""
        self._gap = ""  # blanks that are not passed on yet
        self._before = "\n"  # the character before what is held
        self._stance: Stance | None = None  # of the mark that ended there
        self._at_line_start = True
        self._has_dropped = False  # a mark, since the last text was passed on
        self._passed: list[str] = []
        self._cited: dict[int, None] = {}
        self._dropped: dict[int, None] = {}

    @property
    def text(self) -> str:
        """All that was passed on."""
        return "".join(self._passed)

    @property
    def citations(self) -> list[Hit]:
        """The hits that marks point to, in the order of their first mark."""
        return [self._hits[n] for n in self._cited]

    @property
    def dropped(self) -> list[int]:
        """The numbers that were taken out of the text."""
        return list(self._dropped)

    def feed(self, text: str) -> str:
        """Takes the next piece; what can be passed on now."""
        return self._read(text, is_end=False)

    def finish(self) -> str:
        """The rest of the text."""
        return self._read("", is_end=True)

    def _read(self, text: str, *, is_end: bool) -> str:
        already = len(self._passed)
        if not self._judges:
            self._passed.append(text)
            return text
        self._held += text
        at = 0
        while at < len(self._held) and (after := self._step(at, is_end=is_end)) > at:
            at = after
        self._held = self._held[at:]
        if is_end:
            self._pass("" if self._has_dropped else self._gap)
            self._gap = ""
        return "".join(self._passed[already:])

    def _step(self, at: int, *, is_end: bool) -> int:
        """Takes what stands at that place; where the next begins, or the same place when more must be known first."""
        char = self._held[at]
        if plain := _PLAIN.match(self._held, at):
            self._take(plain[0])
        elif char in " \t":
            self._take_blank(char)
        elif char == "\n":
            self._code.take_line_end()
            self._take(char)
        elif run := _RUN.match(self._held, at):
            if run.end() == len(self._held) and not is_end:
                return at
            self._code.take_run(run[0], at_line_start=self._at_line_start)
            self._take(run[0])
            return run.end()
        else:
            return self._take_bracket(at, is_end=is_end)
        return plain.end() if plain else at + 1

    def _take_bracket(self, at: int, *, is_end: bool) -> int:
        mark = None if self._code.inside else find_mark(self._held, at)
        end = at + len(mark.text) if mark else at + 1
        undecided = end == len(self._held) if mark else may_become_mark(self._held, at) and not self._code.inside
        if undecided and not is_end:
            return at
        if mark and self._judge(mark, self._held[end : end + 1]):
            return end
        self._take(self._held[at])
        return at + 1

    def _judge(self, mark: Mark, following: str) -> bool:
        """Takes a mark that cites or is dropped; false when it is ordinary text."""
        stance = self._stance or ("free" if self._gap else _stance_behind(self._before))
        link = mark.text[0] == "[" and (following == "(" or (following == ":" and self._at_line_start))
        if link or stance == "never" or not all(map(self._is_likely, mark.numbers)):
            return False
        known = [n for n in mark.numbers if n in self._hits]
        unknown = [n for n in mark.numbers if n not in self._hits]
        drops = bool(unknown) and self._may_drop(mark, stance, following)
        if not known and not drops:
            return False
        self._cited.update(dict.fromkeys(known))
        if not drops:
            self._take(mark.text)
        else:
            self._dropped.update(dict.fromkeys(unknown))
            if known:
                self._take(mark.with_numbers(known))
            else:
                self._has_dropped = True
        self._before, self._stance = mark.text[-1], stance
        return True

    def _is_likely(self, number: int) -> bool:
        return number <= _LOW or any(n in self._hits for n in range(number - _NEAR, number + _NEAR + 1))

    def _may_drop(self, mark: Mark, stance: Stance, following: str) -> bool:
        if self._hits:
            return stance != "behind_code"
        # Nothing that was found says that brackets are citations here: only what stands like one is.
        ends_clause = following in ("", "\n") or following in OPENINGS or _is_punctuation(following)
        return len(mark.numbers) == 1 and stance == "free" and ends_clause and not self._at_line_start

    def _take_blank(self, blank: str) -> None:
        if self._has_dropped:
            # Of the blanks around a mark that is gone only those behind it stay, and none at the start of a line.
            self._has_dropped, self._gap = self._at_line_start, ""
        if not self._has_dropped:
            self._gap += blank
        if len(self._gap) > _MAX_GAP:
            self._pass(self._gap)
            self._gap = ""
        self._before, self._stance = blank, None

    def _take(self, text: str) -> None:
        """Passes text on, behind the blanks that wait."""
        if self._has_dropped and (text[0] == "\n" or (_is_punctuation(text[0]) and text[0] not in OPENINGS)):
            self._gap = ""
        self._pass(self._gap + text)
        self._gap, self._has_dropped = "", False
        self._before, self._stance = text[-1], None
        self._at_line_start = text == "\n" or (self._at_line_start and not text.strip(">"))

    def _pass(self, text: str) -> None:
        if text:
            self._passed.append(text)


def _stance_behind(before: str) -> Stance:
    """How a mark stands that follows this character at once."""
    if before in "]\\":
        return "never"  # the second half of a link by reference, or an escaped bracket
    if (before.isascii() and before.isalnum()) or before in "_$@#&=/<":
        return "behind_code"
    return "free" if before.isspace() or (_is_punctuation(before) and before != ")") else "behind_word"


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char).startswith("P")
