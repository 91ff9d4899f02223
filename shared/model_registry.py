"""The chat, embedding and reranking models that an installation offers, read once at start from `models.toml`."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from shared.endpoint_key import WithKey

MODELS_FILE_VARIABLE = "CHATMIND_MODELS_FILE"
DEFAULT_MODELS_FILE = Path("models.toml")

_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_SET_BY_LOADER = ("name", "api_key")


class RegistryError(Exception):
    """The models file is missing or wrong; the message names the file, the entry and the field."""


class UnknownModelError(LookupError):
    """No model of that name in the models file."""


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http:// or https:// address")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must not hold credentials, a query or a fragment")
    return url.rstrip("/")


Seconds = Annotated[float, Field(gt=0, le=1800, allow_inf_nan=False)]
Cosine = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]


class Timeouts(BaseModel):
    """Limits of one model call in seconds.

    `first_byte` runs from the request to the first byte of the answer's body, `idle` between two reads of it, `total`
    over the whole call with its retries.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    connect: Seconds = 5.0
    first_byte: Seconds = 60.0
    idle: Seconds = 30.0
    total: Seconds = 300.0


class _Endpoint(WithKey):
    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True, hide_input_in_errors=True)

    name: str
    """The entry's name: what agents and knowledge bases call this model."""
    base_url: Annotated[str, AfterValidator(_checked_url)]
    """Up to and including the version (`https://host/v1`), without a trailing slash."""
    model: Annotated[str, Field(min_length=1, max_length=200)]
    """What the endpoint calls this model."""
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 8
    """Requests in flight to this model from one process; the rest wait."""
    default: bool = False

    @property
    def usable(self) -> bool:
        return self.problem is None


E = TypeVar("E", bound=_Endpoint)


class ChatModel(_Endpoint):
    """An OpenAI-compatible `/chat/completions` endpoint."""

    timeouts: Timeouts = Timeouts()
    context_tokens: Annotated[int, Field(ge=1024)] = 32_768
    """Tokens the model can take in, its own answer included."""
    tool_protocol: Literal["native", "tags"] = "native"
    """`tags` is for models without tool calls of their own: tools are described in the prompt and called in tags."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Which field of the request limits the answer's length."""


class EmbeddingModel(_Endpoint):
    """An OpenAI-compatible `/embeddings` endpoint.

    A model that tells questions from passages gets either its prefixes (written before each text) or, where the server
    writes these itself, `input_type`: the request then says `"input_type": "query"` or `"passage"`.
    """

    model_config = ConfigDict(str_strip_whitespace=False)  # the blank at the end of "query: " counts

    dimension: Annotated[int, Field(ge=1, le=16_000)]
    query_prefix: Annotated[str, Field(max_length=1000)] = ""
    passage_prefix: Annotated[str, Field(max_length=1000)] = ""
    input_type: bool = False
    batch_size: Annotated[int, Field(ge=1, le=2048)] = 32
    """Texts in one request."""
    timeout: Seconds = 60.0
    score_range: tuple[Cosine, Cosine] = (0.0, 1.0)
    """The cosines of a question and a passage that have nothing to do with each other, and of one that fits perfectly."""

    @model_validator(mode="after")
    def _range_ascends(self) -> Self:
        if self.score_range[0] >= self.score_range[1]:
            raise ValueError("score_range must ascend")
        return self

    @model_validator(mode="after")
    def _one_way_to_tell_queries(self) -> Self:
        if self.input_type and (self.query_prefix or self.passage_prefix):
            raise ValueError("input_type and prefixes exclude each other")
        return self


class RerankModel(_Endpoint):
    """A `/rerank` endpoint: `cohere` as Cohere, Jina, vLLM and others have it, `tei` as Text Embeddings Inference has it."""

    protocol: Literal["cohere", "tei"] = "cohere"
    batch_size: Annotated[int, Field(ge=1, le=1000)] = 50
    """Documents in one request."""
    max_chars: Annotated[int, Field(ge=100, le=100_000)] = 2_000
    """How much of a document's and a question's beginning is sent."""
    timeout: Seconds = 5.0


class ModelRegistry(BaseModel):
    """All models of one `models.toml`; every entry in it is well-formed, and the defaults of chat and embedding are usable."""

    model_config = ConfigDict(frozen=True)

    path: Path
    chat: Mapping[str, ChatModel]
    embedding: Mapping[str, EmbeddingModel]
    rerank: Mapping[str, RerankModel] = {}

    @property
    def default_rerank(self) -> RerankModel | None:
        """None for an installation without reranking models."""
        return next((entry for entry in self.rerank.values() if entry.default), None)

    @property
    def default_chat(self) -> ChatModel:
        return next(entry for entry in self.chat.values() if entry.default)

    @property
    def default_embedding(self) -> EmbeddingModel:
        return next(entry for entry in self.embedding.values() if entry.default)

    def chat_model(self, name: str | None = None) -> ChatModel:
        """The chat model of that name, the default one for None; raises UnknownModelError."""
        return self.default_chat if name is None else _named("chat", self.chat, name)

    def embedding_model(self, name: str | None = None) -> EmbeddingModel:
        """The embedding model of that name, the default one for None; raises UnknownModelError."""
        return self.default_embedding if name is None else _named("embedding", self.embedding, name)

    def problems(self) -> dict[str, str]:
        """Why models can't be used now, by `chat.NAME`, `embedding.NAME` and `rerank.NAME`; empty when all can."""
        entries = {f"chat.{e.name}": e.problem for e in self.chat.values()}
        entries |= {f"embedding.{e.name}": e.problem for e in self.embedding.values()}
        entries |= {f"rerank.{e.name}": e.problem for e in self.rerank.values()}
        return {name: problem for name, problem in entries.items() if problem is not None}


def load_registry(path: Path | None = None, environ: Mapping[str, str] | None = None) -> ModelRegistry:
    """Read the models file at `path`, else at CHATMIND_MODELS_FILE, else `models.toml` here.

    Raises RegistryError for a file that can't be read, an entry that is wrong in any way, and a default model for chat or
    embedding whose key is missing; a missing key of another model only makes that one unusable.
    """
    environ = os.environ if environ is None else environ
    path = path or Path(environ.get(MODELS_FILE_VARIABLE) or DEFAULT_MODELS_FILE)
    document = _read(path)
    unknown = sorted(document.keys() - {"chat", "embedding", "rerank"})
    if unknown:
        raise RegistryError(
            f"{path}: unknown section [{unknown[0]}]; entries are [chat.NAME], [embedding.NAME] or [rerank.NAME]"
        )
    return ModelRegistry(
        path=path,
        chat=_section(path, "chat", ChatModel, document, environ),
        embedding=_section(path, "embedding", EmbeddingModel, document, environ),
        rerank=_section(path, "rerank", RerankModel, document, environ, required=False),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(f"{path}: cannot be read ({error.__class__.__name__})") from error
    except tomllib.TOMLDecodeError as error:
        raise RegistryError(f"{path}: not valid TOML: {error}") from None


def _section(
    path: Path,
    kind: str,
    entry_type: type[E],
    document: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    required: bool = True,
) -> dict[str, E]:
    if not required and kind not in document:
        return {}
    tables = document.get(kind)
    if not isinstance(tables, dict) or not tables:
        raise RegistryError(f"{path}: no [{kind}.NAME] entry")
    entries = {
        name: _entry(f"{path}: [{kind}.{name}]", entry_type, name, table, environ) for name, table in tables.items()
    }
    defaults = [entry for entry in entries.values() if entry.default]
    if len(defaults) != 1:
        raise RegistryError(f"{path}: exactly one [{kind}.NAME] must say default = true, but {len(defaults)} do")
    if (problem := defaults[0].problem) and required:
        raise RegistryError(
            f"{path}: [{kind}.{defaults[0].name}] api_key_env: {problem}, and this is the default model"
        )
    return entries


def _entry(where: str, entry_type: type[E], name: str, table: object, environ: Mapping[str, str]) -> E:
    if not isinstance(table, dict):
        raise RegistryError(f"{where} must be a table")
    if not _NAME.fullmatch(name):
        raise RegistryError(f"{where} name: 1 to 64 letters, digits and . _ : - are allowed")
    for field in _SET_BY_LOADER:
        if field in table:
            raise RegistryError(f"{where} {field}: not allowed here (keys go into a variable named by api_key_env)")
    values = {field: _expanded(f"{where} {field}", value, environ) for field, value in table.items()}
    key = environ.get(str(values.get("api_key_env", "")), "").strip()
    try:
        return entry_type.model_validate({**values, "name": name, "api_key": key or None})
    except ValidationError as error:
        # Never the input: it may hold what only looked like a key's variable.
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        raise RegistryError(f"{where} {field}: {problem['msg']}".replace(" :", ":")) from None


def _expanded(where: str, value: object, environ: Mapping[str, str]) -> object:
    """`value` with `${NAME}` and `${NAME:-default}` replaced in its strings; an empty variable counts as unset."""
    if isinstance(value, dict):
        return {key: _expanded(f"{where}.{key}", item, environ) for key, item in value.items()}
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        found = environ.get(match["name"]) or (match["default"][2:] if match["default"] else None)
        if found is None:
            raise RegistryError(f"{where}: environment variable {match['name']} is not set")
        return found

    return _REFERENCE.sub(replacement, value)


def _named(kind: str, entries: Mapping[str, E], name: str) -> E:
    try:
        return entries[name]
    except KeyError:
        raise UnknownModelError(f"unknown {kind} model {name[:64]!r}; there are: {', '.join(entries)}") from None
