"""What can't be read is set aside with its reason, the queue keeps moving, and a redrive brings back what can be read now."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from deploy.dead_letters import ALL, Letter, drop, main, put_back, redrive, take_all
from shared.contracts.commands import ExecuteRun, IngestDocument
from shared.dead_letters import COMMAND_OF_QUEUE, REASON_HEADER, SERVICE_HEADER, TIME_HEADER
from shared.ids import new_id
from shared.service import make_broker
from shared.settings import CommonSettings
from shared.topology import DEAD_LETTERS, DOCUMENTS, QUEUE_OF_KIND, RUNS, declare_all
from shared.wake_ups import subscribe_to_wake_ups
from tests.support.stack import REPOSITORY, clean_environment
from tests.support.waiting import eventually

SECRET = "what a user wrote"
RUN = ExecuteRun(tenant_id=new_id(), session_id=new_id(), run_id=new_id())
DOCUMENT = IngestDocument(tenant_id=new_id(), knowledge_base_id=new_id(), document_id=new_id())

WRONG = {
    b"": "empty_body",
    b"\xff\xfe\x00": "not_json",
    b'{"run_id": "' + SECRET.encode(): "not_json",
    b'["' + SECRET.encode() + b'"]': "not_an_object",
    b'{"schema_version": 99}': "unknown_schema_version",
    RUN.model_dump_json().replace('"schema_version":1', '"schema_version":2').encode(): "unknown_schema_version",
    RUN.model_dump_json(exclude={"run_id"}).encode(): "invalid_fields: run_id missing",
    RUN.model_dump_json().replace(str(RUN.run_id), SECRET).encode(): "invalid_fields: run_id uuid_parsing",
    DOCUMENT.model_dump_json().encode(): "invalid_fields: session_id missing, run_id missing",
}


@dataclass
class Intake:
    """Counts the wake-ups that were understood."""

    woken: int = 0
    stopping: bool = False
    room: list[float] = field(default_factory=list)

    def nudge(self) -> None:
        self.woken += 1

    async def wait_for_room(self, within: float) -> None:
        self.room.append(within)


@pytest.fixture
async def channel(rabbitmq_url: str) -> AsyncIterator[AbstractChannel]:
    """A channel, with everything declared and empty."""
    async with await aio_pika.connect(rabbitmq_url) as connection:
        channel = await connection.channel(on_return_raises=True)
        await declare_all(channel)
        for name in (RUNS, DOCUMENTS, DEAD_LETTERS):
            await (await channel.declare_queue(name, passive=True)).purge()
        yield channel


def url_of(channel: AbstractChannel) -> str:
    return str(getattr(channel, "_connection").url)  # noqa: B009 - which aio-pika keeps to itself


async def publish(channel: AbstractChannel, queue: str, body: bytes, message_id: str | None = None) -> None:
    message = aio_pika.Message(body, message_id=message_id or str(new_id()), type="ExecuteRun")
    await channel.default_exchange.publish(message, routing_key=queue)


async def count(channel: AbstractChannel, queue: str) -> int:
    declared = await channel.declare_queue(queue, passive=True)
    return declared.declaration_result.message_count or 0


async def letters_of(channel: AbstractChannel, expected: int) -> list[Letter]:
    """The letters, once there are so many, held by the channel."""

    async def are_there() -> bool:
        return await count(channel, DEAD_LETTERS) == expected

    await eventually(are_there)
    return await take_all(channel)


@pytest.mark.parametrize("queue", [RUNS, DOCUMENTS])
async def test_what_cant_be_read_is_set_aside_with_the_reason(channel: AbstractChannel, queue: str) -> None:
    command = COMMAND_OF_QUEUE[queue]
    good = {RUNS: RUN, DOCUMENTS: DOCUMENT}[queue].model_dump_json().encode()
    wrong = [body for body in WRONG if body != good]
    broker = make_broker(settings(channel), "test", apply_types=False)
    intake = Intake()
    subscribe_to_wake_ups(broker, queue, command, intake)
    ids = {body: str(new_id()) for body in wrong}
    async with broker:
        await broker.start()
        for body in wrong:
            await publish(channel, queue, body, ids[body])
        await publish(channel, queue, good)

        async def is_woken() -> bool:
            return intake.woken == 1

        await eventually(is_woken)
        letters = {letter.message.body: letter for letter in await letters_of(channel, len(wrong))}

    assert letters.keys() == set(wrong)
    for body, letter in letters.items():
        headers = letter.message.headers
        assert (letter.queue, letter.id, headers[SERVICE_HEADER]) == (queue, ids[body], "test")
        assert datetime.fromisoformat(str(headers[TIME_HEADER])).tzinfo is not None
        assert SECRET not in letter.reason + letter.ids
        if queue == RUNS:
            assert letter.reason == WRONG[body]
        assert letter.message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT


def settings(channel: AbstractChannel) -> CommonSettings:
    values = {"DATABASE_URL": "postgresql://nobody@127.0.0.1/none", "RABBITMQ_URL": url_of(channel)}
    return CommonSettings.model_validate(values)


async def test_without_a_queue_for_it_the_broker_is_told_to_reject(
    channel: AbstractChannel, capsys: pytest.CaptureFixture[str]
) -> None:
    """The queue of dead letters was deleted: the consumer says so and goes on."""
    await channel.queue_delete(DEAD_LETTERS)
    broker, intake = make_broker(settings(channel), "test", apply_types=False), Intake()
    subscribe_to_wake_ups(broker, RUNS, ExecuteRun, intake)
    async with broker:
        await broker.start()
        await publish(channel, RUNS, b"")
        await publish(channel, RUNS, RUN.model_dump_json().encode())

        async def is_woken() -> bool:
            return intake.woken == 1

        await eventually(is_woken)
    assert "dead_letter.without_reason" in capsys.readouterr().out
    assert await count(channel, RUNS) == 0


async def test_what_the_broker_set_aside_is_listed_too(channel: AbstractChannel) -> None:
    await publish(channel, RUNS, RUN.model_dump_json().encode(), "rejected-1")
    queue = await channel.declare_queue(RUNS, passive=True)
    await (await queue.get()).reject(requeue=False)

    (letter,) = await letters_of(channel, 1)

    assert (letter.id, letter.queue, letter.reason, letter.problem()) == ("rejected-1", RUNS, "rejected", None)
    assert str(RUN.run_id) in letter.ids


async def test_a_redrive_brings_back_what_can_be_read_now(channel: AbstractChannel) -> None:
    good, bad = RUN.model_dump_json().encode(), b"{}"
    await set_aside(channel, good, "good", "unknown_schema_version")
    await set_aside(channel, bad, "bad", "unknown_schema_version")

    letters = await letters_of(channel, 2)
    outcome = await redrive(channel, letters, ALL)
    await put_back(channel, letters)

    assert (outcome.sent, outcome.still_wrong) == (["good"], ["bad"])
    queue = await channel.declare_queue(RUNS, passive=True)
    message = await queue.get()
    assert (message.body, message.message_id) == (good, "good")
    assert REASON_HEADER not in message.headers
    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    (left,) = await letters_of(channel, 1)
    assert (left.id, left.queue) == ("bad", RUNS)
    assert left.reason == "invalid_fields: tenant_id missing, session_id missing, run_id missing"

    # Again: nothing to send, and what is wrong stays as it is.
    again = await redrive(channel, [left], ALL)
    await put_back(channel, [left])
    assert (again.sent, again.still_wrong) == ([], ["bad"])
    await letters_are_free(channel, 1)


async def set_aside(channel: AbstractChannel, body: bytes, message_id: str, reason: str, queue: str = RUNS) -> None:
    headers = {REASON_HEADER: reason, "x-queue": queue}
    message = aio_pika.Message(body, headers=dict(headers), message_id=message_id, type="ExecuteRun")
    await channel.default_exchange.publish(message, routing_key=DEAD_LETTERS)


async def test_one_letter_alone_is_redriven_or_dropped(channel: AbstractChannel) -> None:
    for name in ("first", "second", "third"):
        await set_aside(channel, RUN.model_dump_json().encode(), name, "not_json")
    letters = await letters_of(channel, 3)

    assert (await redrive(channel, letters, "second")).sent == ["second"]
    assert (await drop(letters, "third")).dropped == ["third"]
    assert (await drop(letters, "fourth")).dropped == []
    await put_back(channel, letters)

    assert await count(channel, RUNS) == 1
    assert [letter.id for letter in await letters_of(channel, 1)] == ["first"]


async def test_letters_of_a_queue_that_is_not_known_stay(channel: AbstractChannel) -> None:
    await set_aside(channel, b"{}", "odd", "not_json", queue="elsewhere")
    letters = await letters_of(channel, 1)

    assert (await redrive(channel, letters, ALL)).still_wrong == ["odd"]
    await put_back(channel, letters)
    assert [letter.reason for letter in await letters_of(channel, 1)] == ["unknown_queue"]


async def test_looking_often_wears_no_letter_out(channel: AbstractChannel) -> None:
    """A broker with a delivery limit drops what was put back 20 times."""
    await set_aside(channel, b"{}", "looked-at", "not_json")
    returned = 0
    for _ in range(30):
        letters = await letters_of(channel, 1)
        returned = max(returned, int(str(letters[0].message.headers.get("x-delivery-count") or 0)))
        await put_back(channel, letters)

    assert 5 < returned < 15
    (letter,) = await letters_of(channel, 1)
    assert (letter.id, letter.reason, letter.message.body) == ("looked-at", "not_json", b"{}")


def command(channel: AbstractChannel, *arguments: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    environment = clean_environment() | {"RABBITMQ_URL": url_of(channel), "CHATMIND_FAILPOINT": failpoint}
    return subprocess.run(
        [sys.executable, "-m", "deploy.dead_letters", *arguments],
        cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


async def test_a_redrive_that_is_killed_half_way_is_done_again(channel: AbstractChannel) -> None:
    """Between the confirm and the removal: the wake-up is sent twice, and nothing is lost."""
    await set_aside(channel, RUN.model_dump_json().encode(), "good", "not_json")
    await letters_are_free(channel, 1)

    killed = await asyncio.to_thread(command, channel, "redrive", "all", failpoint="dead_letter_published=kill")
    assert killed.returncode == -signal.SIGKILL
    await letters_are_free(channel, 1)
    done = await asyncio.to_thread(command, channel, "redrive", "all")

    assert (done.returncode, done.stderr) == (0, "")
    assert "redriven: 1" in done.stdout
    assert await count(channel, RUNS) == 2
    again = await asyncio.to_thread(command, channel, "redrive", "all")
    assert (again.returncode, "redriven: 0" in again.stdout) == (0, True)
    assert await count(channel, RUNS) == 2


async def letters_are_free(channel: AbstractChannel, expected: int) -> None:
    async def are_there() -> bool:
        return await count(channel, DEAD_LETTERS) == expected

    await eventually(are_there)


async def test_the_list_on_the_command_line(channel: AbstractChannel) -> None:
    empty = await asyncio.to_thread(command, channel, "list")
    assert (empty.returncode, empty.stdout) == (0, "No dead letters.\n")
    body = RUN.model_dump_json().replace('"request_id":null', f'"request_id":"{SECRET}"').encode()
    await set_aside(channel, body, "odd\x1b[31mid", "invalid_fields: run_id missing")
    await letters_are_free(channel, 1)

    listed = await asyncio.to_thread(command, channel, "list")

    assert listed.returncode == 0, listed.stderr
    line = listed.stdout.splitlines()[1]
    assert RUNS in line
    assert str(RUN.run_id) in line
    assert line.endswith("invalid_fields: run_id missing")
    assert SECRET not in listed.stdout
    assert "\x1b" not in listed.stdout
    assert (await asyncio.to_thread(command, channel, "drop", "nothing")).returncode == 1


def test_a_broker_that_is_away_is_said_without_its_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RABBITMQ_URL", "amqp://operator:hidden-password@127.0.0.1:1/")
    assert main(["list"]) == 2
    monkeypatch.delenv("RABBITMQ_URL")
    assert main(["list"]) == 2
    out = "".join(capsys.readouterr())
    assert "can't be used" in out
    assert "hidden-password" not in out


def test_every_wake_up_queue_has_its_command() -> None:
    assert {queue: kind for kind, queue in QUEUE_OF_KIND.items()} == {
        queue: command.__name__ for queue, command in COMMAND_OF_QUEUE.items()
    }
