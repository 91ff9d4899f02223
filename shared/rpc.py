"""Questions over RabbitMQ with many in flight, deadlines and error envelopes.

The asker has an exclusive queue for replies on a connection of its own: a reply finds its question by correlation id, a cancelled or
expired question only forgets its future, and a lost connection fails every question at once. The answerer drops expired questions unseen
and always answers, if only with a Refused.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import orjson
import structlog
from aio_pika import ExchangeType, Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, HeadersType
from aio_pika.exceptions import PublishError
from pydantic import BaseModel, ValidationError

from shared.amqp import BROKER_TROUBLE, Link, NotConnected
from shared.contracts.base import Contract
from shared.contracts.questions import Answered, Refused
from shared.errors import CodedError
from shared.ids import new_id
from shared.topology import QUESTION_EXCHANGE, REPLY_EXCHANGE, declare_own_queue

log = structlog.get_logger()

ResultT = TypeVar("ResultT", bound=BaseModel)
QuestionT = TypeVar("QuestionT", bound=Contract)

_CONNECT_SECONDS = 3.0
DEADLINE_HEADER = "x-deadline-ms"  # Unix time in milliseconds


class QuestionFailed(CodedError):
    """A question got no answer, or a refusal."""

    code = "question_failed"


class RpcClient:
    """Asks questions. At most `max_in_flight` wait for answers; further ones wait for their turn, within their own deadline."""

    def __init__(self, rabbitmq_url: str, service: str, *, max_in_flight: int = 32) -> None:
        # With confirms, because without them the client library drops returned messages, and a question that nobody takes would
        # cost its whole deadline. A confirm comes before its answer, so it adds no round trip.
        self._link = Link(rabbitmq_url, f"{service}.rpc", self._listen, confirms=True, on_lost=self._fail_all)
        self._service = service
        self._reply_to = ""
        self._turns = asyncio.Semaphore(max_in_flight)
        self._waiting: dict[str, asyncio.Future[bytes]] = {}

    async def run(self) -> None:
        """Keeps the connection for ever."""
        await self._link.run()

    @property
    def ready(self) -> bool:
        return self._link.ready.is_set()

    async def ask(
        self, queue: str, question: Contract, answer: type[ResultT], *, deadline: float, retries: int = 1
    ) -> ResultT:
        """The answer to a question, which must be harmless to ask twice.

        `deadline` is in seconds from now and covers waiting for a turn, all tries and the answer. Raises QuestionFailed with the
        answerer's code, or `question_timeout` / `question_undeliverable`, both retryable.
        """
        try:
            async with asyncio.timeout(deadline):
                ends = time.time() + deadline
                async with self._turns:
                    await self._wait_for_link(deadline)
                    return await self._ask_again(queue, question, answer, ends, retries)
        except TimeoutError:
            raise QuestionFailed(f"no answer within {deadline:g} s", code="question_timeout", retryable=True) from None

    async def _wait_for_link(self, deadline: float) -> None:
        """A process that has just started works before all of its connections are there."""
        try:
            async with asyncio.timeout(min(deadline / 3, _CONNECT_SECONDS)):
                await self._link.ready.wait()
        except TimeoutError:
            pass  # the question will fail as undeliverable

    async def _ask_again(
        self, queue: str, question: Contract, answer: type[ResultT], ends: float, retries: int
    ) -> ResultT:
        while True:
            # Part of the time is kept for the second try, so that one lost question costs half the deadline and not all of it.
            limit = (ends - time.time()) / (retries + 1)
            try:
                async with asyncio.timeout(limit):
                    return _unwrap(await self._ask_once(queue, question, limit), answer)
            except (QuestionFailed, TimeoutError) as error:
                if retries == 0 or (isinstance(error, QuestionFailed) and not error.retryable):
                    raise
                retries -= 1
                log.warning("question.repeated", queue=queue, cause=getattr(error, "code", "question_timeout"))
                await asyncio.sleep(min(0.2, limit / 10))

    async def _ask_once(self, queue: str, question: Contract, limit: float) -> bytes:
        correlation_id = str(new_id())
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        message = Message(
            question.model_dump_json().encode(),
            content_type="application/json",
            type=type(question).__name__,
            correlation_id=correlation_id,
            reply_to=self._reply_to,
            expiration=max(limit, 0.001),
            headers={DEADLINE_HEADER: int((time.time() + limit) * 1000)},
        )
        try:
            exchange = await self._link.channel.get_exchange(QUESTION_EXCHANGE, ensure=False)
            await exchange.publish(message, routing_key=queue, mandatory=True)
            return await future
        except PublishError as error:
            raise _undeliverable("nobody takes this question") from error
        except (*BROKER_TROUBLE, NotConnected) as error:
            if isinstance(error, TimeoutError):
                raise
            raise _undeliverable(str(error) or type(error).__name__) from error
        finally:
            self._waiting.pop(correlation_id, None)

    async def _listen(self, channel: AbstractChannel) -> None:
        exchange = await channel.declare_exchange(REPLY_EXCHANGE, ExchangeType.DIRECT, durable=True)
        replies = await declare_own_queue(channel, self._service, "replies")
        await replies.bind(exchange, routing_key=replies.name)
        await replies.consume(self._take_reply, no_ack=True)
        self._reply_to = replies.name

    async def _take_reply(self, message: AbstractIncomingMessage) -> None:
        future = self._waiting.get(message.correlation_id or "")
        if future is not None and not future.done():
            future.set_result(message.body)

    def _fail_all(self) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(_undeliverable("the connection was lost"))
                future.exception()  # counts as seen: an asker that is still publishing fails by itself


def _undeliverable(cause: str) -> QuestionFailed:
    return QuestionFailed(cause, code="question_undeliverable", retryable=True)


def _unwrap(body: bytes, answer: type[ResultT]) -> ResultT:
    try:
        envelope = orjson.loads(body)
        if envelope.get("ok") is True:
            return answer.model_validate(envelope["result"])
        refused = Refused.model_validate(envelope)
    except (ValueError, AttributeError, KeyError) as error:
        raise QuestionFailed("the answer can't be read", code="answer_unreadable") from error
    raise QuestionFailed(refused.message, code=refused.code, retryable=refused.retryable)


def seconds_left(headers: HeadersType) -> float:
    """Seconds until a question's deadline; negative when it has passed, infinite when it has none."""
    deadline = headers.get(DEADLINE_HEADER)
    return deadline / 1000 - time.time() if isinstance(deadline, int) else float("inf")


async def answer_within(
    headers: HeadersType, body: bytes, question: type[QuestionT], answerer: Callable[[QuestionT], Awaitable[BaseModel]]
) -> bytes | None:
    """The envelope that answers a question, or None when its asker has given up already.

    `answerer` gets the decoded question; a CodedError of its becomes a Refused, anything else `internal_error` (and is logged).
    """
    left = seconds_left(headers)
    if left <= 0:
        log.info("question.expired")
        return None
    try:
        async with asyncio.timeout(None if left == float("inf") else left):
            result = await answerer(question.model_validate_json(body))
        return Answered[BaseModel].model_construct(result=result).model_dump_json(serialize_as_any=True).encode()
    except TimeoutError:
        log.warning("question.abandoned")
        return None
    except ValidationError as error:
        return _refuse("invalid_question", f"{error.error_count()} fields are wrong", retryable=False)
    except CodedError as error:
        return _refuse(error.code, error.message, retryable=error.retryable)
    except Exception:
        log.exception("question.failed")
        return _refuse("internal_error", "the question could not be answered", retryable=True)


def _refuse(code: str, message: str, *, retryable: bool) -> bytes:
    return Refused(code=code, message=message, retryable=retryable).model_dump_json().encode()
