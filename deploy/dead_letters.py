"""Dead letters from the command line: `python -m deploy.dead_letters list`, `redrive all`, `redrive ID`, `drop ID`.

The broker is that of RABBITMQ_URL, with an account that may read and write the queues. Bodies are not shown: only the time, the queue, the
reason and the ids of what a letter was about.

A letter is redriven when the present contracts can read it: it is published to its queue, and removed when the broker has confirmed
that. Being killed in between sends a wake-up twice, which is harmless, as redriving twice is. What is still wrong stays, with the
present reason.
"""

import argparse
import asyncio
import hashlib
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aio_pika
import orjson
from aio_pika import DeliveryMode, Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, HeadersType
from pydantic import ValidationError

from shared.amqp import BROKER_TROUBLE
from shared.dead_letters import COMMAND_OF_QUEUE, QUEUE_HEADER, REASON_HEADER, TIME_HEADER, reason_headers, reason_of
from shared.failpoints import failpoint
from shared.topology import DEAD_LETTERS, QUEUE_OF_KIND, declare_all

ALL = "all"

_SECONDS = 10.0
_IDS = ("tenant_id", "run_id", "document_id")
# Brokers count how often a message was put back, and may drop it after 20 times: before that a letter is replaced by a copy of it.
_MOST_RETURNS = 10


@dataclass(frozen=True)
class Letter:
    """A dead letter, held until this program gives it back or ends. `queue` is where it came from, empty when nothing tells."""

    message: AbstractIncomingMessage

    @property
    def id(self) -> str:
        """The message's id, or one made of its body."""
        return self.message.message_id or hashlib.sha256(self.message.body).hexdigest()[:16]

    @property
    def queue(self) -> str:
        headers = self.message.headers
        named = headers.get(QUEUE_HEADER) or headers.get("x-first-death-queue")
        return str(named or QUEUE_OF_KIND.get(self.message.type or "", ""))

    @property
    def reason(self) -> str:
        """What was found by the consumer that set it aside, or by the broker."""
        return str(
            self.message.headers.get(REASON_HEADER) or self.message.headers.get("x-first-death-reason", "unknown")
        )

    @property
    def since(self) -> str:
        if TIME_HEADER in self.message.headers:
            return str(self.message.headers[TIME_HEADER])
        deaths: Any = self.message.headers.get("x-death") or [{}]
        return str(deaths[0].get("time", "-"))

    @property
    def ids(self) -> str:
        """The ids that its body names, as far as it can be read; only what has the form of an id is shown."""
        try:
            body = orjson.loads(self.message.body)
        except orjson.JSONDecodeError:
            return "-"
        values = [body.get(name) for name in _IDS] if isinstance(body, dict) else []
        shown = [value for value in values if isinstance(value, str) and _is_id(value)]
        return " ".join(shown) or "-"

    def problem(self) -> str | None:
        """Why the present contracts can't read it; None when they can."""
        command = COMMAND_OF_QUEUE.get(self.queue)
        if command is None:
            return "unknown_queue"
        try:
            command.model_validate_json(self.message.body)
        except ValidationError as error:
            return reason_of(error, self.message.body)
        return None

    def copy(self, headers: HeadersType) -> Message:
        """The same message with other headers."""
        return Message(
            self.message.body,
            headers=headers,
            message_id=self.id,
            type=self.message.type,
            content_type=self.message.content_type,
            delivery_mode=DeliveryMode.PERSISTENT,
        )


def _is_id(value: str) -> bool:
    return len(value) <= 36 and all(character in "0123456789abcdef-" for character in value)


@dataclass(frozen=True)
class Outcome:
    """What became of the letters, by id."""

    sent: list[str]
    dropped: list[str]
    still_wrong: list[str]


async def take_all(channel: AbstractChannel) -> list[Letter]:
    """Every letter that is in the queue now. They are held, and come back to the queue when the channel closes."""
    await declare_all(channel)
    queue = await channel.declare_queue(DEAD_LETTERS, passive=True)
    letters: list[Letter] = []
    # As many as there are now: those that others set aside meanwhile are for the next time.
    for _ in range(queue.declaration_result.message_count or 0):
        message = await queue.get(fail=False, timeout=_SECONDS)
        if message is None:
            break
        letters.append(Letter(message))
    return letters


async def redrive(channel: AbstractChannel, letters: Sequence[Letter], wanted: str) -> Outcome:
    """Sends the wanted letters that can be read now back to their queues; names the others and says what is wrong with them now."""
    outcome = Outcome([], [], [])
    for letter in letters:
        if wanted not in (ALL, letter.id):
            continue
        problem = letter.problem()
        if problem is None:
            await _publish(channel, letter.queue, letter.copy({}))
            failpoint("dead_letter_published")
            await letter.message.ack()
            outcome.sent.append(letter.id)
            continue
        outcome.still_wrong.append(letter.id)
        if problem != letter.reason:
            await _replace(channel, letter, reason_headers(problem, letter.queue, "redrive"))
    return outcome


async def drop(letters: Sequence[Letter], wanted: str) -> Outcome:
    """Removes the letters of an id for good."""
    outcome = Outcome([], [], [])
    for letter in letters:
        if letter.id == wanted:
            await letter.message.ack()
            outcome.dropped.append(letter.id)
    return outcome


async def put_back(channel: AbstractChannel, letters: Sequence[Letter]) -> None:
    """Gives the letters that are left to the queue again, those that were put back often as fresh copies."""
    for letter in letters:
        if letter.message.processed:
            continue
        if int(str(letter.message.headers.get("x-delivery-count") or 0)) >= _MOST_RETURNS:
            kept = {name: value for name, value in letter.message.headers.items() if name != "x-delivery-count"}
            await _replace(channel, letter, kept)
        else:
            await letter.message.nack(requeue=True)


async def _replace(channel: AbstractChannel, letter: Letter, headers: HeadersType) -> None:
    await _publish(channel, DEAD_LETTERS, letter.copy(headers))
    await letter.message.ack()


async def _publish(channel: AbstractChannel, queue: str, message: Message) -> None:
    """Raises one of BROKER_TROUBLE unless the broker has it."""
    await channel.default_exchange.publish(message, routing_key=queue, mandatory=True, timeout=_SECONDS)


async def run(rabbitmq_url: str, command: str, wanted: str) -> int:
    """Does it and tells; the exit code. Raises one of BROKER_TROUBLE."""
    async with await aio_pika.connect(rabbitmq_url, timeout=_SECONDS) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        letters = await take_all(channel)
        outcome: Outcome | None = None
        match command:
            case "redrive":
                outcome = await redrive(channel, letters, wanted)
            case "drop":
                outcome = await drop(letters, wanted)
            case _:
                print_table(letters)
        await put_back(channel, letters)
    return print_outcome(outcome, wanted) if outcome else 0


def print_table(letters: Sequence[Letter]) -> None:
    """One line a letter."""
    if not letters:
        print("No dead letters.")
        return
    rows = [("since", "queue", "id", "ids", "reason")]
    rows += [(letter.since, letter.queue or "-", letter.id, letter.ids, letter.reason) for letter in letters]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        print("".join(character if character.isprintable() else "?" for character in line))


def print_outcome(outcome: Outcome, wanted: str) -> int:
    """What was done; 1 when nothing has this id or something could not be redriven."""
    done = len(outcome.sent) + len(outcome.dropped) + len(outcome.still_wrong)
    if not done and wanted != ALL:
        print("No dead letter has this id.")
        return 1
    print(f"redriven: {len(outcome.sent)}, dropped: {len(outcome.dropped)}, still wrong: {len(outcome.still_wrong)}")
    return 1 if outcome.still_wrong else 0


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0 done, 1 not all of it, 2 not configured or not reachable."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.dead_letters", description="Messages that could not be read."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="when, where from, why, and the ids of what they were about")
    for name, what in (("redrive", "send back to its queue what can be read now"), ("drop", "remove for good")):
        commands.add_parser(name, help=what).add_argument(
            "id", help="an id of the list" + (", or all" if name == "redrive" else "")
        )
    options = parser.parse_args(arguments)
    logging.getLogger("aio_pika").setLevel(logging.CRITICAL)
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    url = os.environ.get("RABBITMQ_URL")
    if not url:
        print("RABBITMQ_URL is not set", file=sys.stderr)
        return 2
    try:
        return asyncio.run(run(url, options.command, getattr(options, "id", ALL)))
    except BROKER_TROUBLE as error:
        print(f"the broker can't be used: {type(error).__name__}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
