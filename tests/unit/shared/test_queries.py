"""Query files: what is taken, and what is refused."""

from pathlib import Path

import pytest

from shared.db.queries import QueryFileError, load_queries

GOOD = """-- name: first
-- Reads one.
SELECT 1;

-- name: second
-- Reads two,
-- in two lines.
SELECT 2 -- a comment
FROM t;
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "queries.sql"
    path.write_text(text)
    return path


def test_statements_by_name(tmp_path: Path) -> None:
    assert load_queries(write(tmp_path, GOOD)) == {"first": "SELECT 1", "second": "SELECT 2 -- a comment\nFROM t"}


@pytest.mark.parametrize(
    "text",
    [
        GOOD + GOOD,
        "-- name: undescribed\nSELECT 1;\n",
        "-- name: Wrong-Name\n-- About it.\nSELECT 1;\n",
        GOOD + "-- name:\n-- About it.\nSELECT 1;\n",
    ],
    ids=["repeated", "undescribed", "misnamed", "nameless"],
)
def test_what_does_not_follow_the_form_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(QueryFileError, match=r"queries\.sql"):
        load_queries(write(tmp_path, text))
