"""Messages of older releases are read, those of unknown ones refused: how a message changes its meaning."""

from typing import Any, ClassVar

import pytest
from pydantic import StrictInt, ValidationError, model_validator

from shared.contracts.base import Contract
from shared.contracts.commands import ExecuteRun, IngestDocument
from shared.contracts.questions import Answered, SearchResult
from shared.dead_letters import reason_of
from shared.ids import new_id
from tests.support.retrieval_double import make_hit


class Renamed(Contract):
    """A message whose second version calls a field by another name."""

    reads: ClassVar[frozenset[int]] = frozenset({1, 2})
    schema_version: StrictInt = 2
    subject: str

    @model_validator(mode="before")
    @classmethod
    def _from_version_1(cls, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("schema_version", 1) == 1 and "topic" in body:
            return {**body, "subject": body["topic"], "schema_version": 2}
        return body


def test_an_old_version_is_read_and_the_new_one_is_sent() -> None:
    old = Renamed.model_validate_json(b'{"schema_version": 1, "topic": "kettle"}')
    new = Renamed(subject="kettle")

    assert old == new
    assert Renamed.model_validate_json(new.model_dump_json()) == new
    assert new.schema_version == 2


@pytest.mark.parametrize("version", ["3", "0", "true", "1.0", '"1"', "null", "[]"])
def test_an_unknown_version_is_told_from_other_mistakes(version: str) -> None:
    body = f'{{"schema_version": {version}, "subject": "kettle"}}'.encode()
    with pytest.raises(ValidationError) as refused:
        Renamed.model_validate_json(body)

    assert reason_of(refused.value, body) == "unknown_schema_version"


@pytest.mark.parametrize("command", [ExecuteRun, IngestDocument])
def test_a_wake_up_without_a_version_is_of_the_first(command: type[Contract]) -> None:
    fields = {name: str(new_id()) for name, field in command.model_fields.items() if field.is_required()}
    assert command.model_validate(fields).schema_version == 1


def test_hits_of_a_release_that_knew_no_pages_are_read() -> None:
    answer = Answered[SearchResult](result=SearchResult(hits=(make_hit("a"),))).model_dump(mode="json")
    for name in ("page_first", "page_last"):
        del answer["result"]["hits"][0][name]
    (hit,) = Answered[SearchResult].model_validate(answer).result.hits
    assert (hit.page_first, hit.page_last) == (None, None)
