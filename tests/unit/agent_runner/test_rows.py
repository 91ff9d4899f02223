"""What a step writes can be stored, whatever the model wrote."""

from datetime import UTC, datetime

import pytest

from services.agent_runner import rows
from services.agent_runner.models.types import ToolCall
from services.agent_runner.steps import OpenCall, ToolResult
from shared.errors import ErrorInfo
from shared.ids import new_id
from shared.json_text import to_json


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ('{"query": "q"}', {"query": "q"}),
        ("", {}),
        ("{oops", "{oops"),
        ('{"a": "\\u0000"}', '{"a": "\\u0000"}'),
        ("[" * 600 + "]" * 600, "[" * 600 + "]" * 600),
        ('{"n": 36893488147419103232}', {"n": 3.6893488147419103e19}),
        ("\0{}", "{}"),
    ],
)
def test_arguments_are_json_where_the_database_takes_that_and_text_elsewhere(written: str, stored: object) -> None:
    entry = rows.execute_entry(
        OpenCall(ToolCall("c", "T", written), 1, 1, 1), new_id(), ToolResult("r"), datetime.now(UTC)
    )
    assert entry["arguments"] == stored
    assert "\0" not in to_json(entry)


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_errors_quote_only_what_can_be_stored(text: str) -> None:
    message = ErrorInfo(code="x", message=text).message
    assert "\0" not in message
    assert message.encode()
