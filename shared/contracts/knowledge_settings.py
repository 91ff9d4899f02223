"""The `settings` object of a knowledge base: how its documents are cut, cleaned and embedded."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

SplitMethod = Literal["heading", "recursive", "sentence", "parent_child"]
Embed = Literal["title", "body", "both"]
# services/ingestion/cleaning.py says what each of them does.
CleaningRule = Literal[
    "comments",
    "tags",
    "page_marks",
    "wiki_links",
    "images",
    "percent_encoding",
    "blank_runs",
    "links",
    "urls",
    "emails",
    "running_page_numbers",
    "hyphenation",
    "invisible_characters",
]

_OF_CHILDREN: Final = {
    "chunk_size": 200,
    "overlap": 20,
}  # found by what it says, read in its parent: the smaller, the sharper


class CustomCleaning(BaseModel):
    """Rules by name, applied in this order, none to code.

    `comments` (HTML), `tags` (HTML, wiki), `page_marks` (`===== Page 2 =====`), `wiki_links` (words stay), `images` (descriptions stay),
    `percent_encoding` (becomes readable), `blank_runs`; and, not in `wiki`: `links` (words stay), `urls`, `emails`,
    `running_page_numbers` (lines of a number that count up), `hyphenation` (words torn by a line's end), `invisible_characters`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: tuple[CleaningRule, ...] = Field(min_length=1, max_length=50)


def _of_one_kind(value: Any) -> Any:
    """Says what is wrong with the kind that was meant, not with each of those that it could have been."""
    if isinstance(value, Mapping):
        return CustomCleaning.model_validate(value)
    if isinstance(value, CustomCleaning) or value in ("off", "wiki"):
        return value
    raise ValueError('must be "off", "wiki" or {"rules": [names of rules]}')


# `wiki`: the rules that exports of wikis need, in their order.
Cleaning = Annotated[Literal["off", "wiki"] | CustomCleaning, BeforeValidator(_of_one_kind)]


class SplitSettings(BaseModel):
    """How a document becomes chunks. All sizes but `max_section_tokens` are in characters.

    `heading` makes each section a chunk of its own and cuts only what is longer than `max_section` or `max_section_tokens`, or has no
    headings, into windows of `chunk_size`. `recursive` ignores headings. `sentence` packs whole sentences of a section up to `chunk_size`.
    `parent_child` searches chunks of `chunk_size` (200 unless given, `overlap` 20) and returns the section, or the part of it of at
    most `parent_size`, that they are in.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: SplitMethod = "heading"
    chunk_size: int = Field(default=500, ge=50, le=8000, strict=True)
    overlap: int = Field(default=50, ge=0, le=4000, strict=True)
    # A section is what its author meant to be read at once, so it may be longer than a chunk, but not longer than what an embedding
    # model of 512 tokens reads: about 550 Chinese characters, 1,900 English ones.
    max_section: int = Field(default=2000, ge=50, le=20_000, strict=True)
    max_section_tokens: int = Field(default=480, ge=50, le=20_000, strict=True)
    parent_size: int = Field(default=1500, ge=100, le=20_000, strict=True)
    heading_levels: int = Field(default=6, ge=1, le=6, strict=True)

    @property
    def section_limit(self) -> int:
        """Characters up to which a section stays whole; never less than a chunk may have."""
        return max(self.max_section, self.chunk_size)

    @model_validator(mode="before")
    @classmethod
    def _children_are_small(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("method") == "parent_child":
            return {**_OF_CHILDREN, **given}
        return given

    @model_validator(mode="after")
    def _sizes_fit_together(self) -> Self:
        if self.overlap * 2 > self.chunk_size:
            raise ValueError("overlap must be at most half of chunk_size")
        if self.method == "parent_child" and self.parent_size < self.chunk_size * 2:
            raise ValueError("parent_size must be at least twice chunk_size")
        return self


class KnowledgeBaseSettings(BaseModel):
    """Settings of one knowledge base; what is left out has its default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    splitting: SplitSettings = SplitSettings()
    cleaning: Cleaning = "off"
    embed: Embed = "both"
    # Keyword search takes traditional Chinese for simplified, so that a question in either finds both.
    fold_traditional: bool = Field(default=True, strict=True)

    def stored(self) -> dict[str, Any]:
        """As JSON to store. The previous release refuses what it doesn't know: new fields are left out where they have their defaults."""
        new_sizes = _unchanged(self.splitting, "max_section_tokens", "parent_size")
        new_fields = dict.fromkeys(_unchanged(self, "fold_traditional"), True)
        return self.model_dump(mode="json", exclude={"splitting": new_sizes, **new_fields})


def _unchanged(settings: BaseModel, *names: str) -> set[str]:
    return {name for name in names if getattr(settings, name) == type(settings).model_fields[name].default}
