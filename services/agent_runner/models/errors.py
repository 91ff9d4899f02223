"""What can go wrong between the runner and a chat model. No I/O here.

`code` is stable and goes into the run's error; `retryable` says whether the same request may succeed later. Messages
hold neither the key nor whole bodies.
"""

from typing import ClassVar

from pydantic import SecretStr

MAX_DETAIL_CHARS = 300


class ModelError(Exception):
    """The model gave no usable reply."""

    code: ClassVar[str] = "llm_error"
    retryable: ClassVar[bool] = False

    retry_after: float | None = None
    """Seconds after which the endpoint wants to be asked again, where it said so."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self._detail = detail
        self._model = ""

    def __str__(self) -> str:
        detail = self._detail[:MAX_DETAIL_CHARS]
        return f"{self._model}: {detail}" if self._model else detail

    def concerns(self, model: str, key: SecretStr | None) -> None:
        """Name the model in the message, and take its key out of it: some providers echo what they were sent."""
        self._model = model
        if key:
            self._detail = self._detail.replace(key.get_secret_value(), "***")
            self.args = (self._detail,)


class ModelUnavailableError(ModelError):
    """No connection to the endpoint, or it answered 5xx, until the time for retries was up."""

    code = "llm_unavailable"
    retryable = True


class ModelRateLimitedError(ModelError):
    """The endpoint answered 429 until the time for retries was up."""

    code = "llm_rate_limited"
    retryable = True


class ModelTimeoutError(ModelError):
    """No first byte, silence in mid-stream, or no end within the total time."""

    code = "llm_timeout"
    retryable = True


class ModelBadResponseError(ModelError):
    """The answer is not the protocol's, was cut off before a finish_reason, or carries an error object."""

    code = "llm_bad_response"
    retryable = True


class ModelReplyTooLargeError(ModelError):
    """The answer has more text, arguments or tool calls than is accepted."""

    code = "llm_reply_too_large"


class ModelTruncatedCallError(ModelError):
    """The answer's length limit fell inside a tool call, which is therefore not executed."""

    code = "llm_truncated_tool_call"


class ModelUnauthorizedError(ModelError):
    """The endpoint refused the key (401, 403)."""

    code = "llm_unauthorized"


class ModelNotConfiguredError(ModelError):
    """The model is not in the registry, or not usable as it stands there (its key is missing)."""

    code = "llm_not_configured"


class ModelContextLengthError(ModelError):
    """The request is longer than the model's context."""

    code = "llm_context_length"


class ModelRefusedRequestError(ModelError):
    """The endpoint refused the request for another reason (4xx)."""

    code = "llm_refused_request"
