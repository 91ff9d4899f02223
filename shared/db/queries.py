"""SQL from files: each statement is named and described, and stays a literal string."""

import re
from pathlib import Path

_HEADER = re.compile(r"^-- name: (?P<name>[a-z][a-z0-9_]*)\n(?P<about>(?:--.*\n)+)", re.MULTILINE)


class QueryFileError(Exception):
    """A queries.sql doesn't follow the form: `-- name: x`, at least one line of description, one statement."""


def load_queries(path: Path) -> dict[str, str]:
    """Statements of a file by name. Raises QueryFileError when a name is missing, repeated or undescribed."""
    text = path.read_text()
    headers = list(_HEADER.finditer(text))
    names = [header["name"] for header in headers]
    if text.count("-- name:") != len(headers) or len(set(names)) != len(names):
        raise QueryFileError(f"{path}: every statement needs a name of its own and a line that describes it")
    ends = [header.start() for header in headers[1:]] + [len(text)]
    # The file is part of the program, so its text is as literal as a string in the source.
    return {
        header["name"]: text[header.end() : end].strip().rstrip(";") for header, end in zip(headers, ends, strict=True)
    }
