"""Question sets: what is uploaded, what is asked, and which hits are right.

A set is a folder with `corpus.jsonl` (id, title, text), `queries.jsonl` (id, query, gold: [passage id]) and, where it has raw documents,
`docs/` and `evidence` in its queries: quotes, and a hit is right when its text holds one. Without `docs/`, passages are
uploaded as the sections of Markdown files, and a hit is right when it comes out of a gold passage.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.evaluation.comparing import fold, json_lines

Json = dict[str, Any]

_PASSAGES_A_FILE = 50
_LEAST_SHARE = 0.6  # of a quote's word trigrams, where quotes drop the targets of links
_HAN = re.compile(r"[\u3400-\u9fff]")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Question:
    """`gold` are passage ids, `quotes` verbatim evidence; a set has one or the other."""

    text: str
    gold: frozenset[str] = frozenset()
    quotes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A file to upload. `passages` are the ids of what stands in it, `starts` their character offsets."""

    filename: str
    content: str
    passages: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()

    def passage_at(self, offset: int) -> str:
        """The passage that holds a character."""
        return self.passages[bisect_right(self.starts, offset) - 1]


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """A set, ready to run."""

    name: str
    sources: Sequence[Source]
    questions: Sequence[Question]
    unanswerable: Sequence[str] = field(default=())


def load_sets(root: Path, names: Sequence[str] = ()) -> Iterator[QuestionSet]:
    """The sets below a folder, all of them or those named; a set with both languages comes as questions across them."""
    for folder in sorted(path for path in root.iterdir() if (path / "queries.jsonl").exists()):
        for loaded in _load(folder):
            if not names or loaded.name in names:
                yield loaded


def _load(folder: Path) -> Iterator[QuestionSet]:
    queries = json_lines(folder / "queries.jsonl")
    if "query_en" in queries[0]:
        corpus = json_lines(folder / "corpus.jsonl")
        for asked, found in (("query", "en"), ("query_en", "zh")):
            sources = list(_as_sections([row for row in corpus if row["id"].endswith(f"-{found}")]))
            questions = [Question(row[asked], gold=frozenset({row[f"gold_{found}"]})) for row in queries]
            name = folder.name if found == "en" else folder.name.replace("zh-en", "en-zh")
            yield QuestionSet(name, sources, questions)
        return
    unanswerable = [row["query"] for row in json_lines(folder / "unanswerable.jsonl")]
    if (folder / "docs").exists() and "evidence" in queries[0]:
        files = sorted(path for path in (folder / "docs").rglob("*") if path.is_file())
        names = [str(path.relative_to(folder / "docs")).replace("/", "__") for path in files]
        sources = [Source(name, path.read_text()) for name, path in zip(names, files, strict=True)]
        quoted = [Question(row["query"], quotes=tuple(part["quote"] for part in row["evidence"])) for row in queries]
        yield QuestionSet(folder.name, sources, quoted, unanswerable)
        return
    sources = list(_as_sections(json_lines(folder / "corpus.jsonl")))
    questions = [Question(row["query"], gold=frozenset(row["gold"])) for row in queries]
    yield QuestionSet(folder.name, sources, questions, unanswerable)


def _as_sections(passages: Sequence[Json]) -> Iterator[Source]:
    """Markdown files in which each passage is a section under its title; offsets hold in the product's normalised text."""
    for first in range(0, len(passages), _PASSAGES_A_FILE):
        group = passages[first : first + _PASSAGES_A_FILE]
        parts = [f"# {_line(row['title'])}\n\n{_line_ends(row['text'])}\n\n" for row in group]
        starts = [0]
        for part in parts:
            starts.append(starts[-1] + len(part))
        yield Source(
            f"{first:05}.md", "".join(parts), tuple(row["id"] for row in group), tuple(a for a, _ in pairwise(starts))
        )


def _line(title: str) -> str:
    return unicodedata.normalize("NFC", " ".join(title.split()))


def _line_ends(text: str) -> str:
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n")).replace("\x00", "").strip()


def holds(content: str, quote: str) -> bool:
    """Whether a text holds a quote, to the letter or, for longer quotes in words, most of its word trigrams."""
    if fold(quote) in fold(content):
        return True
    wanted, present = _trigrams(quote), _trigrams(content)
    return not _HAN.search(quote) and len(wanted) >= 3 and len(wanted & present) >= _LEAST_SHARE * len(wanted)


@lru_cache(maxsize=50_000)
def _trigrams(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return set(zip(words, words[1:], words[2:], strict=False))
