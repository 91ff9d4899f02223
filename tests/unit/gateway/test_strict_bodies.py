"""No field of any request body is taken for what it isn't: a text for a number, a number for a date or a truth."""

from collections.abc import Iterator
from datetime import date
from typing import Any, get_args

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError

from services.gateway.routes import ROUTERS
from services.gateway.schemas.knowledge_bases import KnowledgeBaseCreate, ReprocessRequest
from services.gateway.schemas.labels import Labels
from shared.contracts.knowledge_settings import SplitSettings
from shared.contracts.questions import SearchFilter

OTHERS: dict[type, list[Any]] = {
    int: ["1", "100", " 5", 100.5, True, "1e2"],
    float: ["0.5", "1", True],
    bool: ["true", "yes", "1", 1, 0, 1.0],
    date: ["0", "1700000000", 0, 1.5, "2024-1-1", "20240101", "2024-12-31T00:00:00", "２０２４-01-01", " 2024-12-31"],
    str: [1, 1.5, True],
}


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a type is made of, theirs included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_in(field.annotation)
    for part in get_args(annotation):
        yield from models_in(part)


def bodies() -> set[type[BaseModel]]:
    routes = (route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute))
    fields = (route.body_field for route in routes if route.body_field is not None)
    return {model for field in fields for model in models_in(field.field_info.annotation)}


def plain_types(annotation: Any) -> set[type]:
    """Which of the types above a field's values may be of; those within its lists as well."""
    if annotation in OTHERS:
        return {annotation}
    return {plain for part in get_args(annotation) for plain in plain_types(part)}


def wrong_values() -> Iterator[Any]:
    for model in sorted(bodies(), key=lambda model: model.__name__):
        for name, field in model.model_fields.items():
            types = plain_types(field.annotation)
            if len(types) != 1:
                continue
            for value in OTHERS[types.pop()]:
                yield pytest.param(model, name, value, id=f"{model.__name__}.{name}={value!r}")


def test_the_bodies_were_found() -> None:
    assert {KnowledgeBaseCreate, ReprocessRequest, SplitSettings, SearchFilter} <= bodies()


@pytest.mark.parametrize(("model", "name", "value"), list(wrong_values()))
def test_a_value_of_another_type_is_refused(model: type[BaseModel], name: str, value: Any) -> None:
    for given in (value, [value]):
        with pytest.raises(ValidationError) as caught:
            TypeAdapter(model).validate_python({name: given})
        places = [error["loc"][0] for error in caught.value.errors() if error["loc"]]
        assert name in places, f"{name} takes {given!r}"


@pytest.mark.parametrize("written", ["2024-12-31", "1999-01-01", "0001-01-02", "9999-12-30"])
def test_dates_as_they_are_written_are_taken(written: str) -> None:
    assert SearchFilter.model_validate({"date_from": written}).date_from == date.fromisoformat(written)


def date_fields() -> Iterator[Any]:
    models: set[type[BaseModel]] = bodies() | {Labels}
    for model in sorted(models, key=lambda model: model.__name__):
        for name, field in model.model_fields.items():
            if plain_types(field.annotation) == {date}:
                yield pytest.param(model, name, id=f"{model.__name__}.{name}")


@pytest.mark.parametrize(("model", "name"), list(date_fields()))
def test_days_that_the_database_takes_for_infinite_are_refused(model: type[BaseModel], name: str) -> None:
    for day in (date.min, date.max):
        for given in (day, day.isoformat()):
            with pytest.raises(ValidationError, match="must be from 0001-01-02 to 9999-12-30") as caught:
                model.model_validate({name: given})
            assert [error["loc"] for error in caught.value.errors()] == [(name,)]


def test_every_date_was_found() -> None:
    assert {case.id for case in date_fields()} == {
        "DocumentPatch.date",
        "Labels.date",
        "SearchFilter.date_from",
        "SearchFilter.date_to",
    }
