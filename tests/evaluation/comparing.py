"""How texts are compared, and lists read, as the README of the data says."""

import json
import re
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any

_NOT_COMPARED = re.compile(r"[\s*_`\\|]+")


@lru_cache(maxsize=50_000)
def fold(text: str) -> str:
    """The text as it is compared: NFKC, lower case, no white space, without the marks `* _ \\` \\ |`."""
    return _NOT_COMPARED.sub("", unicodedata.normalize("NFKC", text).lower())


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one a line; none where there is no file."""
    return [json.loads(line) for line in path.read_text().split("\n") if line] if path.exists() else []
