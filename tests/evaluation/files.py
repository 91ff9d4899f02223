"""What the product reads out of real files, held against what was noted of each: phrases, order, headings, refusals.

A folder of files has an `EXPECTED.jsonl`, one object a file. Both sides of a comparison are folded first, because white space, case,
width and the marks of Markdown are nobody's concern here.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from services.ingestion.parsing.documents import parse
from services.ingestion.parsing.worker import IsolatedParser
from services.ingestion.sections import ParsedDocument, ParsedFile
from services.ingestion.text import DocumentError
from shared.contracts.knowledge_settings import KnowledgeBaseSettings, SplitSettings
from shared.contracts.media import supported_media_type
from tests.evaluation.comparing import fold, json_lines

_CODE = re.compile(r"(`[^`]+`)")
_TAG = re.compile(r"<[^<>]*>")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
# Pieces that don't overlap hold the text once; recursive splitting keeps the headings' lines in it.
_TEXT: Final = KnowledgeBaseSettings(splitting=SplitSettings(method="recursive", chunk_size=8000, overlap=0))
_CLEANED: Final = _TEXT.model_copy(update={"cleaning": "wiki"})
_SECTIONS: Final = KnowledgeBaseSettings()
_NO_TEXT: Final = frozenset({"no_text", "empty_document"})
_NO_REFUSAL: Final = frozenset({"parse_crashed", "parse_timeout", "parse_memory"})


@dataclass(frozen=True, slots=True)
class FileResult:
    """Whether a file came out as expected; else why not, or which refusal it met."""

    name: str
    met: bool
    reason: str = ""


async def evaluate_files(root: Path) -> list[FileResult]:
    """Read each file that `EXPECTED.jsonl` and `made/EXPECTED.jsonl` name, in the isolated parser, with the default settings."""
    expected = [*json_lines(root / "EXPECTED.jsonl"), *json_lines(root / "made" / "EXPECTED.jsonl")]
    async with IsolatedParser() as parser:
        return [await _evaluate(parser, root, one) for one in expected]


async def _evaluate(parser: IsolatedParser, root: Path, expected: dict[str, Any]) -> FileResult:
    name, kind = expected["file"], expected["expect"]
    try:
        missed = await _missed(parser, root / name, expected)
    except DocumentError as error:
        wanted = _codes(expected)
        met = error.code in wanted if wanted else kind == "either" and error.code not in _NO_REFUSAL
        return FileResult(name, met, f"{error.code}: {error}")
    if kind in ("refuse", "no_text"):
        return FileResult(name, False, "was read, and should have been refused")
    return FileResult(name, not missed, "; ".join(missed))


def _codes(expected: dict[str, Any]) -> frozenset[str]:
    """Return the codes that a file has to be refused with; none where it may be refused with any, or is to be read."""
    match expected["expect"]:
        case "no_text":
            return _NO_TEXT
        case "refuse":
            return frozenset({expected["reason"]})
        case _:
            return frozenset()


async def _missed(parser: IsolatedParser, path: Path, expected: dict[str, Any]) -> list[str]:
    """Return the expectations that the file doesn't meet, in words."""
    text = fold("\n".join(await _contents(parser, path, _TEXT)))
    missed = [f"lacks {phrase!r}" for phrase in expected.get("must_contain", []) if fold(phrase) not in text]
    missed += [f"holds {phrase!r}" for phrase in expected.get("must_not", []) if fold(phrase) in text]
    if not _in_order(text, expected.get("in_order", [])):
        missed.append("the order is another")
    if "must_keep" in expected:
        cleaned = fold("\n".join(await _contents(parser, path, _CLEANED)))
        missed += [f"cleaning takes {phrase!r}" for phrase in expected["must_keep"] if fold(phrase) not in cleaned]
        noise = expected["must_not_after_cleaning"]
        missed += [f"cleaning leaves {phrase!r}" for phrase in noise if fold(phrase) in cleaned]
    if "headings" in expected:
        missed += await _missed_headings(parser, path, expected["headings"])
    return missed


async def _contents(parser: IsolatedParser, path: Path, settings: KnowledgeBaseSettings) -> list[str]:
    return [piece.content for piece in (await _parse(parser, path, settings)).pieces]


async def _parse(parser: IsolatedParser, path: Path, settings: KnowledgeBaseSettings) -> ParsedFile:
    data = await asyncio.to_thread(path.read_bytes)
    media_type = supported_media_type(path.name, None)
    return await parser.parse(data, filename=path.name, media_type=media_type, settings=settings)


async def _missed_headings(parser: IsolatedParser, path: Path, headings: Sequence[str]) -> list[str]:
    """Return the headings that don't stand in the paths of the sections, in that order."""
    parsed = await _parse(parser, path, _SECTIONS)
    found = iter([fold(name) for names in _opened([piece.heading_path for piece in parsed.pieces]) for name in names])
    return [f"lacks the heading {heading!r}" for heading in headings if fold(heading) not in found]


def _in_order(text: str, phrases: Sequence[str]) -> bool:
    position = 0
    for phrase in phrases:
        position = text.find(fold(phrase), position) + 1
        if not position:
            return False
    return True


async def evaluate_markdown(root: Path) -> list[FileResult]:
    """Compare the headings of each Markdown file, and of those in other encodings, with those an independent parser saw."""
    expected = {one["file"]: one["headings"] for one in json_lines(root / "EXPECTED.jsonl")}
    for one in json_lines(root / "variants" / "VARIANTS.jsonl"):
        expected[one["file"]] = expected[one["same_headings_as"]]
    return [_compare_headings(root, name, headings) for name, headings in expected.items()]


def _compare_headings(root: Path, name: str, headings: Sequence[tuple[int, int, str, str]]) -> FileResult:
    """Headings within lists and quotes open no section, and so aren't asked for."""
    wanted = [words for _, _, text, where in headings if where == "top" and (words := fold(_plain(text)))]
    try:
        document = parse((root / name).read_bytes(), filename=name)
    except DocumentError as error:
        return FileResult(name, False, f"{error.code}: {error}")
    found = list(_headings(document))
    if found == wanted:
        return FileResult(name, True)
    index = next((i for i, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(found), len(wanted)) if index is None else index
    return FileResult(name, False, f"heading {at + 1}: {found[at : at + 1]}, expected {wanted[at : at + 1]}")


def _headings(document: ParsedDocument) -> Iterator[str]:
    sections = [section for section in document.sections if section.level]
    for names in _opened([section.heading_path for section in sections]):
        yield from (fold(name) for name in names)


def _opened(paths: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield for each section the headings that were opened with it: what its path doesn't share with the one before, and its last."""
    before: tuple[str, ...] = ()
    for path in paths:
        shared = 0
        while shared < min(len(path) - 1, len(before)) and path[shared] == before[shared]:
            shared += 1
        yield path[shared:]
        before = path


def _plain(heading: str) -> str:
    """Return a heading's words without HTML, links and escapes, which mean nothing inside code."""
    pieces = _CODE.split(heading)
    pieces[::2] = [_ESCAPED.sub(r"\1", _LINK.sub(r"\1", _TAG.sub("", piece))) for piece in pieces[::2]]
    return "".join(pieces)
