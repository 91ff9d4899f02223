"""Cursors come back as the keys that they were made of, and nothing else is taken."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway import cursors
from services.gateway.refusals import Refusal


@given(st.uuids())
def test_ids(key: object) -> None:
    assert cursors.decode_id(cursors.encode_id(key)) == key  # type: ignore[arg-type]


@given(st.integers(0, cursors.HIGHEST_NUMBER))
def test_numbers(key: int) -> None:
    assert cursors.decode_number(cursors.encode_number(key)) == key


@given(st.text(max_size=40))
def test_any_other_text_is_refused_or_is_a_key(text: str) -> None:
    for decode in (cursors.decode_id, cursors.decode_number):
        with suppress(Refusal):
            assert decode(text) is not None


@pytest.mark.parametrize("cursor", ["", "AAAA", "gAAAAAAAAAA", "!" * 11])
def test_numbers_that_are_none(cursor: str) -> None:
    with pytest.raises(Refusal):
        cursors.decode_number(cursor)
