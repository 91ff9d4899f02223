"""The HTTP tools that an operator adds, read once at start from `tools.toml`."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

import jsonschema_rs
import orjson
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError

from shared.contracts.tools import TOOLS, ToolEffect
from shared.endpoint_key import WithKey

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what model endpoints take as a function's name
_SET_BY_LOADER = ("name", "api_key")


class ToolsFileError(Exception):
    """The tools file can't be read or is wrong; the message names the file, the entry and the field."""


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http:// or https:// address")
    if parts.username or parts.password or parts.fragment:
        raise ValueError("must not hold credentials or a fragment")
    return url


def _read_schema(text: object) -> object:
    if not isinstance(text, str):
        raise ValueError("must be a JSON Schema as text")
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError('must be a JSON Schema with "type": "object"')
    return schema


def _checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        compile_schema(schema)
    except jsonschema_rs.ValidationError as error:
        raise ValueError(f"is not a valid JSON Schema: {error.message}") from None
    return schema


def compile_schema(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """A validator of this schema; `$ref` reaches nothing outside of it. Raises jsonschema_rs.ValidationError."""
    return jsonschema_rs.validator_for(schema, retriever=_retrieve_nothing)


def _retrieve_nothing(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside of the schema")


class HttpToolEntry(WithKey):
    """One `[http.NAME]`: calling the tool is a POST of its arguments as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True, hide_input_in_errors=True)

    name: str
    """The entry's name: what agents and models call this tool."""
    description: Annotated[str, Field(min_length=1, max_length=4000)]
    """What people and models are told."""
    url: Annotated[str, AfterValidator(_checked_url)]
    effect: ToolEffect
    timeout: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] = 30.0
    """Seconds that a call may take."""
    parameters: Annotated[dict[str, Any], BeforeValidator(_read_schema), AfterValidator(_checked_schema)]
    """The JSON Schema (of type object) of the arguments."""


def load_tool_registry(path: Path, environ: Mapping[str, str] | None = None) -> dict[str, HttpToolEntry]:
    """The HTTP tools by name; none when there is no file.

    Raises ToolsFileError for a file that can't be read and an entry that is wrong in any way. A missing key only makes its tool unusable.
    """
    environ = os.environ if environ is None else environ
    document = _read(path)
    if unknown := sorted(document.keys() - {"http"}):
        raise ToolsFileError(f"{path}: unknown section [{unknown[0]}]; entries are [http.NAME]")
    tables = document.get("http", {})
    if not isinstance(tables, dict):
        raise ToolsFileError(f"{path}: [http] must hold entries [http.NAME]")
    return {name: _entry(f"{path}: [http.{name}]", name, table, environ) for name, table in tables.items()}


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ToolsFileError(f"{path}: cannot be read ({error.__class__.__name__})") from error
    except tomllib.TOMLDecodeError as error:
        raise ToolsFileError(f"{path}: not valid TOML: {error}") from None


def _entry(where: str, name: str, table: object, environ: Mapping[str, str]) -> HttpToolEntry:
    if not isinstance(table, dict):
        raise ToolsFileError(f"{where} must be a table")
    if not _NAME.fullmatch(name):
        raise ToolsFileError(f"{where} name: 1 to 64 letters, digits and _ - are allowed")
    if name in TOOLS:
        raise ToolsFileError(f"{where} name: {name} is a tool that comes with ChatMind")
    for field in _SET_BY_LOADER:
        if field in table:
            raise ToolsFileError(f"{where} {field}: not allowed here (keys go into a variable named by api_key_env)")
    key = environ.get(str(table.get("api_key_env", "")), "").strip()
    try:
        return HttpToolEntry.model_validate({**table, "name": name, "api_key": key or None})
    except ValidationError as error:
        # Never the input: it may hold what only looked like a key's variable.
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        raise ToolsFileError(f"{where} {field}: {problem['msg']}".replace(" :", ":")) from None
