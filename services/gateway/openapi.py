"""The OpenAPI document: what FastAPI writes, with every error as the problem that it is."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from services.gateway.problems import MEDIA_TYPE, PROBLEMS
from services.gateway.schemas.problems import FieldProblem, Problem

_SCHEMA = "#/components/schemas/{model}"
_ALWAYS_POSSIBLE = ("401", "408", "422", "429", "500", "503")
_SECURITY = "api_key"
_BEARER = {"type": "http", "scheme": "bearer", "description": "A key of one tenant: `cm_...`"}
_METHODS = ("get", "post", "put", "patch", "delete")


def operation_id(route: APIRoute) -> str:
    """The function's name: short, and unique because every route has a function of its own."""
    return route.name


class DocumentedApp(FastAPI):
    """An application whose OpenAPI document tells of problems."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            schema = super().openapi()
            _add_problem_schemas(schema["components"]["schemas"])
            schema["components"]["securitySchemes"] = {_SECURITY: _BEARER}
            for path, operation in _operations(schema):
                if path.startswith("/api/"):
                    operation["security"] = [{_SECURITY: []}]
                    _describe_problems(operation["responses"])
            self.openapi_schema = schema
        return self.openapi_schema


def _operations(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in schema["paths"].items():
        yield from ((path, item[method]) for method in _METHODS if method in item)


def _add_problem_schemas(schemas: dict[str, Any]) -> None:
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template=_SCHEMA, mode="serialization")
    problem.pop("$defs", None)
    schemas["Problem"] = problem
    schemas["FieldProblem"] = FieldProblem.model_json_schema(ref_template=_SCHEMA)


def _describe_problems(responses: dict[str, Any]) -> None:
    errors = {status for status in responses if status >= "400"} | set(_ALWAYS_POSSIBLE)
    for status in sorted(errors):
        codes = [code for code, (number, _title) in PROBLEMS.items() if number == int(status)]
        responses[status] = {
            "description": "Codes: " + ", ".join(f"`{code}`" for code in codes),
            "content": {MEDIA_TYPE: {"schema": {"$ref": _SCHEMA.format(model="Problem")}}},
        }
