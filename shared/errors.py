"""Errors that carry a stable code, whoever they are shown to."""

from pydantic import BaseModel, ConfigDict, field_validator


def storable(text: str) -> str:
    """Text that PostgreSQL and UTF-8 take: without NUL, lone surrogates replaced by `?`."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


class ErrorInfo(BaseModel):
    """An error as it is stored, sent and shown: a code for programs and a sentence for people."""

    model_config = ConfigDict(frozen=True)

    code: str
    message: str

    @field_validator("message")
    @classmethod
    def _is_storable(cls, message: str) -> str:
        # Messages quote what others sent, and what they sent may be the very thing that is wrong.
        return storable(message)


class CodedError(Exception):
    """An error with a stable code.

    `retryable` says that the same attempt may succeed later without anybody changing anything.
    """

    code = "internal_error"
    retryable = False

    def __init__(self, message: str, *, code: str | None = None, retryable: bool | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if retryable is not None:
            self.retryable = retryable

    @property
    def info(self) -> ErrorInfo:
        return ErrorInfo(code=self.code, message=self.message)


class LeaseLost(CodedError):
    """Somebody else owns the work now, or nobody needs it any more: stop without writing anything."""

    code = "lease_lost"
