"""The `settings` object of a knowledge base: how its documents are cut, cleaned and embedded."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Cleaning = Literal["off", "wiki"]
Embed = Literal["title", "body", "both"]


class SplitSettings(BaseModel):
    """How a document becomes chunks. All sizes are in characters.

    `heading` makes each section a chunk of its own and cuts recursively only what is longer than `section_limit` or
    has no headings; `recursive` ignores headings.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["heading", "recursive"] = "heading"
    chunk_size: int = Field(default=500, ge=50, le=8000)
    overlap: int = Field(default=50, ge=0, le=4000)
    # A section is what its author meant to be read at once, so it may be longer than a chunk, but not longer than what
    # an embedding model of 512 tokens reads: about 800 Chinese characters, 2,000 English ones.
    max_section: int = Field(default=800, ge=50, le=20_000)
    heading_levels: int = Field(default=6, ge=1, le=6)

    @property
    def section_limit(self) -> int:
        """Characters up to which a section stays whole; never less than a chunk may have."""
        return max(self.max_section, self.chunk_size)

    @model_validator(mode="after")
    def _overlap_leaves_room(self) -> Self:
        if self.overlap * 2 > self.chunk_size:
            raise ValueError("overlap must be at most half of chunk_size")
        return self


class KnowledgeBaseSettings(BaseModel):
    """Settings of one knowledge base; what is left out has its default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    splitting: SplitSettings = SplitSettings()
    cleaning: Cleaning = "off"
    embed: Embed = "both"
