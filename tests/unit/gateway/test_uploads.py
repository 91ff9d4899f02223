"""File names as clients send them, and what is kept of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.uploads import clean_filename


@pytest.mark.parametrize(
    ("given_name", "kept"),
    [
        ("handbook.md", "handbook.md"),
        ("订单 设计（终稿）.md", "订单 设计（终稿）.md"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\notes.txt", "notes.txt"),
        ("a\x00b\n\x1b[31m.md", "ab[31m.md"),
        ("lone\ud800.md", "lone.md"),
        (" spaced .md ", "spaced .md"),
        ("invoice\u202efdp.md", "invoicefdp.md"),
        ("\u2066a\u2069\u202a\u202b\u202c\u202d\u2067\u2068.md", "a.md"),
        ("\u202e\u2066", "file"),
        ("דוח שנתי.md", "דוח שנתי.md"),
        ("", "file"),
        ("...", "file"),
        ("dir/", "file"),
        ("x" * 300 + ".md", "x" * 252 + ".md"),
        ("名" * 255, "名" * 255),
    ],
)
def test_names(given_name: str, kept: str) -> None:
    assert clean_filename(given_name) == kept


@given(st.text(st.characters(codec=None), max_size=600))
def test_any_name_becomes_one_that_can_be_stored_and_shown(name: str) -> None:
    cleaned = clean_filename(name)
    assert 1 <= len(cleaned) <= 255
    assert not set(cleaned) & set("/\\\0\n\r\t\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    cleaned.encode()
    assert clean_filename(cleaned) == cleaned
