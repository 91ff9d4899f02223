"""Every message between services survives the wire, in both directions of time."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from shared import contracts
from shared.contracts.base import Contract
from shared.contracts.hints import HINT, EventFrame, MessageDelta, RunCancelled, StreamAdvanced
from shared.contracts.questions import Answered, RunScope, SearchFilter, SearchKnowledge, SearchResult, TenantScope
from shared.ids import new_id
from shared.topology import QUEUE_OF_KIND

# Parts of messages: never sent alone.
PARTS = {"EventFrame"}


def subclasses(parent: type[Contract]) -> Iterator[type[Contract]]:
    for child in parent.__subclasses__():
        yield child
        yield from subclasses(child)


def messages() -> list[type[Contract]]:
    """Every Contract class of the package; of the generic answer, the one that is sent."""
    for module in pkgutil.iter_modules(contracts.__path__, "shared.contracts."):
        importlib.import_module(module.name)
    found = {
        cls for cls in subclasses(Contract) if cls.__module__.startswith("shared.contracts") and "[" not in cls.__name__
    }
    return sorted((found - {Answered}) | {Answered[SearchResult]}, key=lambda cls: cls.__name__)


MESSAGES = messages()
TEXT = st.text(st.characters(codec="utf-8"), max_size=50)
UUIDS = st.uuids()


def instances(cls: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Instances with any content that the wire can carry."""
    st.register_type_strategy(str, TEXT)
    narrowed = st.builds(SearchFilter, document_ids=st.lists(UUIDS, min_size=1, max_size=3).map(tuple))
    st.register_type_strategy(SearchFilter, narrowed)
    if cls is SearchKnowledge:
        scopes = st.one_of(
            st.builds(RunScope, run_id=UUIDS, knowledge_base_ids=st.none() | st.lists(UUIDS, max_size=3).map(tuple)),
            st.builds(TenantScope, tenant_id=UUIDS, knowledge_base_id=UUIDS),
        )
        query = st.text(st.characters(codec="utf-8"), min_size=1, max_size=50)
        wordings = st.lists(query, max_size=4).map(tuple)
        return st.builds(
            SearchKnowledge,
            scope=scopes,
            query=query,
            queries=wordings,
            top_k=st.integers(1, 50),
            filter=st.none() | narrowed,
        )
    if cls is SearchResult or cls.__name__.startswith("Answered"):
        st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
    return st.builds(cls)


def example(cls: type[Contract]) -> dict[str, Any]:
    """The smallest message of a class, as it stands on the wire."""
    fields: dict[type[Contract], dict[str, Any]] = {
        SearchKnowledge: {"scope": {"by": "run", "run_id": str(new_id())}, "query": "q"},
        Answered[SearchResult]: {"result": {"hits": []}},
    }
    by_type: dict[str, Any] = {"UUID": str(new_id()), "str": "x", "int": 1, "bool": True}
    required = {
        name: by_type[getattr(field.annotation, "__name__", "")]
        for name, field in cls.model_fields.items()
        if field.is_required() and cls not in fields
    }
    return {"schema_version": 1, **required, **fields.get(cls, {})}


@pytest.mark.parametrize("cls", MESSAGES)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_message_comes_back_equal(cls: type[Contract], data: st.DataObject) -> None:
    message = data.draw(instances(cls))
    assert cls.model_validate_json(message.model_dump_json()) == message


@pytest.mark.parametrize("cls", MESSAGES)
def test_a_newer_senders_fields_are_ignored(cls: type[Contract]) -> None:
    message = cls.model_validate(example(cls))
    assert cls.model_validate(example(cls) | message.model_dump(mode="json") | {"added_later": {"a": 1}}) == message
    assert "added_later" not in message.model_dump()


@pytest.mark.parametrize("cls", MESSAGES)
@pytest.mark.parametrize("version", [0, 3, "1.1", None])
def test_another_schema_version_is_refused(cls: type[Contract], version: object) -> None:
    with pytest.raises(ValidationError) as refused:
        cls.model_validate(example(cls) | {"schema_version": version})
    assert refused.value.errors()[0]["loc"] == ("schema_version",)


@pytest.mark.parametrize("cls", MESSAGES)
def test_messages_are_immutable(cls: type[Contract]) -> None:
    message = cls.model_validate(example(cls))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(message, "schema_version", 1)  # noqa: B010 - as a type checker would not allow


def test_every_required_field_is_missed() -> None:
    for cls in MESSAGES:
        for name, field in cls.model_fields.items():
            if field.is_required():
                with pytest.raises(ValidationError):
                    cls.model_validate({key: value for key, value in example(cls).items() if key != name})


@settings(max_examples=100, deadline=None)
@given(st.one_of(instances(StreamAdvanced), instances(MessageDelta), instances(RunCancelled)))
def test_a_hint_is_known_by_its_kind(hint: StreamAdvanced | MessageDelta | RunCancelled) -> None:
    assert HINT.validate_json(hint.model_dump_json()) == hint


def test_an_unknown_hint_is_refused() -> None:
    with pytest.raises(ValidationError):
        HINT.validate_json(b'{"kind": "run.paused", "run_id": "00000000-0000-0000-0000-000000000000"}')


def test_an_events_bytes_are_not_touched() -> None:
    data = '{"seq":1,"text":"\u597d \\u0041 1.0 1e2"}'
    hint = StreamAdvanced(stream_id=new_id(), last_seq=1, events=(EventFrame(seq=1, type="x", data=data),))
    (frame,) = StreamAdvanced.model_validate_json(hint.model_dump_json()).events
    assert frame.data == data


def test_the_table_names_every_message() -> None:
    assert contracts.__doc__ is not None
    rows = [line.split("|")[1] for line in contracts.__doc__.splitlines() if line.startswith("|")][2:]
    named = {word for row in rows for word in re.findall(r"[A-Z]\w+", row)} - {"SearchResult"}
    assert named == {cls.__name__.split("[")[0] for cls in MESSAGES} - PARTS


def test_every_wake_up_has_a_queue() -> None:
    commands = {cls.__name__ for cls in MESSAGES if cls.__module__ == "shared.contracts.commands"}
    assert set(QUEUE_OF_KIND) == commands


def test_a_filter_is_refused_by_those_who_know_none() -> None:
    class KnowsNoFilters(Contract):
        query: str

    plain = SearchKnowledge(scope=RunScope(run_id=new_id()), query="q")
    filtered = SearchKnowledge(scope=plain.scope, query="q", filter=SearchFilter(tags=("hr",)))

    assert KnowsNoFilters.model_validate_json(plain.model_dump_json()).query == "q"
    with pytest.raises(ValidationError, match="unknown schema version"):
        KnowsNoFilters.model_validate_json(filtered.model_dump_json())
