"""Cells of an Excel sheet as a reader sees them: dates as dates, shares as per cent, numbers without noise."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from lxml import etree

from services.ingestion.parsing.ooxml import attribute, child, kind_of

Kind = Literal["number", "percent", "date", "time", "datetime", "duration"]

_EPOCH: Final = datetime(1899, 12, 30, tzinfo=UTC)  # a sheet's dates have no time zone, and none is shown
_EPOCH_1904: Final = datetime(1904, 1, 1, tzinfo=UTC)
_LAST_SERIAL: Final = 2_958_466.0  # 31 December 9999
_NOT_A_CODE = re.compile(r'"[^"]*"|\\.|\[(?!h+\]|m+\]|s+\])[^\]]*\]|_.|\*.', re.IGNORECASE)
_DURATION = re.compile(r"\[[hms]+\]", re.IGNORECASE)
_DECIMALS = re.compile(r"\.(0+)")
# Formats that have a number instead of a code, ISO/IEC 29500-1 18.8.30, with those of East Asia.
_BUILT_IN: Final[dict[int, Kind]] = {
    **dict.fromkeys((14, 15, 16, 17, *range(27, 32), 36, *range(50, 55), 57, 58), "date"),
    **dict.fromkeys((18, 19, 20, 21, 32, 33, 34, 35, 45, 47, 55, 56), "time"),
    **dict.fromkeys((9, 10), "percent"),
    22: "datetime",
    46: "duration",
}


@dataclass(frozen=True, slots=True)
class Format:
    """How a number is shown."""

    kind: Kind = "number"
    decimals: int = 0


_GENERAL: Final = Format()


def read_formats(styles: etree._Element | None) -> list[Format]:
    """Return the number formats of a workbook by the index that cells refer to them with."""
    custom, cells = child_or_nothing(styles, "x:numFmts"), child_or_nothing(styles, "x:cellXfs")
    codes = {attribute(one, "numFmtId") or "": attribute(one, "formatCode") or "" for one in custom}
    return [_format(attribute(one, "numFmtId") or "0", codes) for one in cells if kind_of(one) == "x:xf"]


def child_or_nothing(element: etree._Element | None, kind: str) -> Sequence[etree._Element]:
    """Return the children of the first child of a kind."""
    found = None if element is None else child(element, kind)
    return () if found is None else list(found)


def _format(number: str, codes: dict[str, str]) -> Format:
    if number in codes:
        return format_of(codes[number])
    index = int(number) if number.isdecimal() and len(number) < 10 else 0
    return Format(_BUILT_IN.get(index, "number"), 2 if index == 10 else 0)


def format_of(code: str) -> Format:
    """Return what a format code such as `yyyy"年"m"月"d"日"` or `0.0%` shows."""
    plain = _NOT_A_CODE.sub("", code).partition(";")[0].lower()
    if "general" in plain or "@" in plain:
        return _GENERAL
    if "%" in plain:
        decimals = _DECIMALS.search(plain)
        return Format("percent", len(decimals[1]) if decimals else 0)
    if _DURATION.search(plain):
        return Format("duration")
    has_time = "h" in plain or "s" in plain
    has_date = "y" in plain or "d" in plain or ("m" in plain and not has_time)
    if has_date:
        return Format("datetime" if has_time else "date")
    return Format("time") if has_time else _GENERAL


def shared_text(element: etree._Element) -> str:
    """Return the text of a string with its runs, without phonetic guides."""
    return "".join(_runs(element))


def _runs(element: etree._Element) -> Iterator[str]:
    for one in element:
        kind = kind_of(one)
        if kind == "x:t":
            yield one.text or ""
        elif kind == "x:r":
            yield from _runs(one)


@dataclass(frozen=True, slots=True)
class Values:
    """What the cells of a workbook refer to."""

    strings: Sequence[str]
    formats: Sequence[Format]
    since_1904: bool = False

    def text(self, cell: etree._Element) -> str:
        """Return what a cell shows; of a formula its last result, or itself if it was never calculated; of an error nothing."""
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            inline = child(cell, "x:is")
            return "" if inline is None else shared_text(inline)
        found = child(cell, "x:v")
        value = "" if found is None else (found.text or "").strip()
        return self._shown(cell, kind, value) if value else _formula(cell)

    def _shown(self, cell: etree._Element, kind: str, value: str) -> str:
        match kind:
            case "s":
                return (
                    self.strings[int(value)]
                    if value.isdecimal() and len(value) < 10 and int(value) < len(self.strings)
                    else ""
                )
            case "b":
                return "TRUE" if value == "1" else "FALSE"
            case "e":
                return ""
            case "n":
                return self._number(value, cell.get("s", "0"))
            case _:
                return value

    def _number(self, value: str, style: str) -> str:
        try:
            number = float(value)
        except ValueError:
            return value
        index = int(style) if style.isdecimal() and len(style) < 10 else 0
        shown = self.formats[index] if index < len(self.formats) else _GENERAL
        match shown.kind:
            case "number":
                return value if value.lstrip("-").isdecimal() else f"{number:.15g}"
            case "percent":
                return f"{number * 100:.{min(shown.decimals, 10)}f}%"
            case "duration":
                return _duration(number) if math.isfinite(number) else f"{number:.15g}"
            case kind:
                return self._moment(number, kind) or f"{number:.15g}"

    def _moment(self, serial: float, kind: Kind) -> str | None:
        if not 0 <= serial < _LAST_SERIAL:
            return None
        days, seconds = int(serial), round((serial % 1) * 86_400)
        try:
            moment = (_EPOCH_1904 if self.since_1904 else _EPOCH) + timedelta(days=days, seconds=seconds)
        except OverflowError:  # beyond the year 9999
            return None
        if kind == "time" and days == 0:
            return moment.strftime("%H:%M:%S" if moment.second else "%H:%M")
        if kind == "date" or not seconds:
            return f"{moment:%Y-%m-%d}"
        return moment.strftime("%Y-%m-%d %H:%M:%S" if moment.second else "%Y-%m-%d %H:%M")


def _formula(cell: etree._Element) -> str:
    """Return the formula of a cell as one types it, with the cells that it fills where it stands for several."""
    found = child(cell, "x:f")
    if found is None or not found.text:
        return ""
    filled = found.get("ref")
    return f"={found.text}" if filled in (None, cell.get("r")) else f"={found.text} ({filled})"


def _duration(days: float) -> str:
    minutes, seconds = divmod(round(abs(days) * 86_400), 60)
    return f"{'-' if days < 0 else ''}{minutes // 60}:{minutes % 60:02}:{seconds:02}"
