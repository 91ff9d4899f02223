"""Events as clients get them."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from shared.events import to_frame
from shared.ids import new_id
from shared.json_text import to_json

STREAM = UUID("01890000-0000-7000-8000-000000000001")
AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


def test_the_head_stands_before_the_stored_fields_which_stay_byte_for_byte() -> None:
    payload = '{"text" : "\u597d \\u597d",  "n": 1.0}'
    frame = to_frame({"seq": 3, "type": "run.state", "payload": payload, "created_at": AT}, "session_id", STREAM)

    assert (frame.seq, frame.type) == (3, "run.state")
    assert frame.data == (
        f'{{"seq":3,"session_id":"{STREAM}","type":"run.state","created_at":"2026-01-02T03:04:05.678000+00:00",'
        '"text" : "\u597d \\u597d",  "n": 1.0}'
    )


@pytest.mark.parametrize("payload", ["{}", " {} "])
def test_an_event_without_fields(payload: str) -> None:
    row = {"seq": 1, "type": "x", "payload": payload, "created_at": AT}
    assert set(json.loads(to_frame(row, "knowledge_base_id", STREAM).data)) == {
        "seq",
        "type",
        "knowledge_base_id",
        "created_at",
    }


def test_json_text_takes_ids_of_any_library_and_refuses_the_rest() -> None:
    class DriverUUID(UUID):
        """As asyncpg's."""

    assert to_json({"id": DriverUUID(str(STREAM)), "text": "好"}) == f'{{"id":"{STREAM}","text":"好"}}'
    with pytest.raises(TypeError):
        to_json({"value": object()})


def test_ids_sort_by_time() -> None:
    ids = [new_id() for _ in range(1000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1000
    assert {made.version for made in ids} == {7}


def test_line_ends_of_other_alphabets_are_escaped() -> None:
    row = {"seq": 1, "type": "t", "payload": '{"text": "a\u2028b\u2029c\x85d"}', "created_at": "now"}
    data = to_frame(row, "session_id", new_id()).data
    assert data.splitlines() == [data]
    assert json.loads(data)["text"] == "a\u2028b\u2029c\x85d"
