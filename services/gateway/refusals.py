"""Refusals: what the gateway won't do, by code. `problems` says which HTTP status each code has."""

from dataclasses import dataclass
from uuid import UUID

from shared.errors import CodedError


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field; `field` is its path with dots, as in `options.temperature`."""

    field: str
    code: str
    message: str


class Refusal(CodedError):
    """A request that is answered with a problem. The message goes to the client."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        fields: tuple[FieldError, ...] = (),
        retry_after: int | None = None,
        run_id: UUID | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.fields = fields
        self.run_id = run_id
        self.retry_after = retry_after


def not_found(what: str) -> Refusal:
    """The same words for an id that doesn't exist and for one of another tenant."""
    return Refusal("not_found", f"There is no such {what}.")


def wrong_field(field: str, code: str, message: str) -> Refusal:
    """One field of an otherwise well-formed request refers to something that isn't there."""
    return Refusal(code, message, fields=(FieldError(field, code, message),))
