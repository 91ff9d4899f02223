"""How errors look."""

from uuid import UUID

from pydantic import BaseModel, Field


class FieldProblem(BaseModel):
    """What is wrong with one field."""

    field: str = Field(examples=["options.temperature"])
    code: str = Field(examples=["less_than_equal"])
    message: str


class Problem(BaseModel):
    """RFC 9457 problem details. `code` is stable, `detail` is for people."""

    type: str = Field(examples=["urn:chatmind:problem:not_found"])
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    code: str = Field(examples=["not_found"])
    errors: list[FieldProblem] = Field(default=[], description="wrong fields")
    run_id: UUID | None = Field(default=None, description="the run that keeps the session busy")
    cause: str | None = Field(default=None, description="the code of the service behind")
