"""Case 77: each service's account tries what it must not, at both servers, and is refused."""

from collections.abc import Awaitable, Callable

import aio_pika
import psycopg
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aiormq.exceptions import ChannelAccessRefused, ProbableAuthenticationError

from shared.db.accounts import SERVICES
from shared.topology import (
    DEAD_LETTERS,
    DOCUMENTS,
    HINTS,
    QUESTION_EXCHANGE,
    QUESTIONS,
    REPLY_EXCHANGE,
    RUNS,
    declare_all,
)
from shared.topology import WAKE_UP_EXCHANGE as WAKE_UPS
from tests.support.stack import Stack

Attempt = Callable[[AbstractChannel], Awaitable[object]]

OF_EVERY_SERVICE = {
    "make a table": "CREATE TABLE mine (id integer)",
    "make a temporary table": "CREATE TEMPORARY TABLE mine (id integer)",
    "make a function": "CREATE FUNCTION mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "make a schema": "CREATE SCHEMA mine",
    "make a table among the indexes": "CREATE TABLE vector_indexes.mine (id integer)",
    "change a table": "ALTER TABLE run ADD COLUMN mine integer",
    "drop a table": "DROP TABLE run_step",
    "empty a table": "TRUNCATE run CASCADE",
    "switch triggers off": "ALTER TABLE run DISABLE TRIGGER ALL",
    "make a role": "CREATE ROLE mine",
    "become the owner": "SET ROLE chatmind",
    "give itself the owner's rights": "GRANT chatmind TO CURRENT_USER",
    "read passwords": "SELECT rolpassword FROM pg_authid",
    "read the server's files": "SELECT pg_read_file('postgresql.conf')",
    "run a program": "COPY (SELECT 1) TO PROGRAM 'true'",
    "end others' sessions": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
    "see the version of the schema": "SELECT * FROM alembic_version",
    "change the version of the schema": "UPDATE alembic_version SET version_num = '0000'",
    "delete tenants": "DELETE FROM tenant",
}
OF_ONE = {
    "gateway": {
        "write chunks": "INSERT INTO chunk (content) VALUES ('planted')",
        "change chunks": "UPDATE chunk SET content = 'changed'",
        "read vectors": "SELECT embedding FROM chunk_embedding",
        "change the bytes of documents": "UPDATE document_blob SET data = 'x'",
        "change stored events": "UPDATE session_event SET payload = '{}'",
        "make a key valid again with other bytes": "UPDATE api_key SET key_hash = 'x'",
        "change what was said": "UPDATE chat_message SET content = 'changed'",
    },
    "agent_runner": {
        "read keys": "SELECT key_hash FROM api_key",
        "read chunks": "SELECT content FROM chunk",
        "read documents": "SELECT filename FROM document",
        "change agents": "UPDATE agent SET system_prompt = 'changed'",
        "give grants": "INSERT INTO agent_knowledge_base SELECT * FROM agent_knowledge_base",
        "delete sessions": "DELETE FROM chat_session",
        "read answers of requests": "SELECT response FROM idempotency_key",
    },
    "ingestion": {
        "read keys": "SELECT * FROM api_key",
        "read conversations": "SELECT content FROM chat_message",
        "read events of conversations": "SELECT payload FROM session_event",
        "read agents": "SELECT system_prompt FROM agent",
        "read runs": "SELECT id FROM run",
        "delete documents": "DELETE FROM document",
        "search": "SELECT nearest_indexed_vectors(gen_random_uuid(), 1, '[1]', 1, NULL)",
        "plant bytes": "INSERT INTO document_blob (data) VALUES ('planted')",
    },
    "retrieval": {
        "read keys": "SELECT * FROM api_key",
        "read conversations": "SELECT content FROM chat_message",
        "read prompts": "SELECT system_prompt FROM agent",
        "read titles of sessions": "SELECT title FROM chat_session",
        "write chunks": "INSERT INTO chunk (content) VALUES ('planted')",
        "give grants": "INSERT INTO agent_knowledge_base SELECT * FROM agent_knowledge_base",
        "write wake-ups": "INSERT INTO outbox (kind) VALUES ('ExecuteRun')",
        "delete vectors": "DELETE FROM chunk_embedding",
        "build indexes": "SELECT build_vector_index(gen_random_uuid(), 1, 64)",
        "drop indexes": "SELECT drop_unused_vector_relations()",
    },
}
STATEMENTS = [
    pytest.param(service, statement, id=f"{service}: {what}")
    for service in SERVICES
    for what, statement in {**OF_EVERY_SERVICE, **OF_ONE[service]}.items()
]


@pytest.mark.parametrize(("service", "statement"), STATEMENTS)
def test_the_database_refuses(stack: Stack, accounts_database_url: str, service: str, statement: str) -> None:
    url = stack.postgres.account_url(service, accounts_database_url.rsplit("/", 1)[1])
    with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.encode())


def test_each_service_has_a_password_of_its_own(stack: Stack, accounts_database_url: str) -> None:
    database = accounts_database_url.rsplit("/", 1)[1]
    foreign = stack.postgres.account_url("retrieval", database).replace("chatmind_retrieval", "chatmind_gateway")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(foreign)


async def ignore(_message: AbstractIncomingMessage) -> None:
    return None


def consume(queue: str) -> Attempt:
    async def attempt(channel: AbstractChannel) -> None:
        await (await channel.get_queue(queue, ensure=False)).consume(ignore)

    return attempt


def get(queue: str) -> Attempt:
    async def attempt(channel: AbstractChannel) -> None:
        await (await channel.get_queue(queue, ensure=False)).get(fail=False)

    return attempt


def purge(queue: str) -> Attempt:
    async def attempt(channel: AbstractChannel) -> None:
        await (await channel.get_queue(queue, ensure=False)).purge()

    return attempt


def delete(queue: str) -> Attempt:
    async def attempt(channel: AbstractChannel) -> None:
        await channel.queue_delete(queue)

    return attempt


def delete_exchange(name: str) -> Attempt:
    async def attempt(channel: AbstractChannel) -> None:
        await channel.exchange_delete(name)

    return attempt


def declare(queue: str) -> Attempt:
    async def attempt(channel: AbstractChannel) -> None:
        await channel.declare_queue(queue, durable=True)

    return attempt


def declare_exchange(name: str) -> Attempt:
    async def attempt(channel: AbstractChannel) -> None:
        await channel.declare_exchange(name, durable=True)

    return attempt


def publish(exchange: str, routing_key: str) -> Attempt:
    async def attempt(channel: AbstractChannel) -> None:
        target = await channel.get_exchange(exchange, ensure=False) if exchange else channel.default_exchange
        await target.publish(aio_pika.Message(b"{}"), routing_key)

    return attempt


def eavesdrop(exchange: str) -> Attempt:
    """Copies of what goes through an exchange, in a queue of one's own."""

    async def attempt(channel: AbstractChannel) -> None:
        queue = await channel.declare_queue("gateway.hints.0", exclusive=True)
        await queue.bind(exchange, routing_key="#")

    return attempt


BROKER_OF_EVERY_SERVICE = {
    "declare a queue": declare("mine"),
    "declare an exchange": declare_exchange("mine"),
    "publish into a queue by its name": publish("", RUNS),
    "publish through an exchange of the broker": publish("amq.topic", "x"),
    "read the broker's events": delete_exchange("amq.rabbitmq.log"),
    "empty the dead letters": delete("another"),
}
BROKER_OF_ONE: dict[str, dict[str, Attempt]] = {
    "gateway": {
        "consume runs": consume(RUNS),
        "take a run": get(RUNS),
        "purge runs": purge(RUNS),
        "delete runs": delete(RUNS),
        "consume documents": consume(DOCUMENTS),
        "consume questions": consume(QUESTIONS),
        "read dead letters": get(DEAD_LETTERS),
        "answer questions": publish(REPLY_EXCHANGE, "x"),
        "copy wake-ups": eavesdrop(WAKE_UPS),
        "copy questions": eavesdrop(QUESTION_EXCHANGE),
        "delete the exchange of wake-ups": delete_exchange(WAKE_UPS),
    },
    "agent_runner": {
        "consume documents": consume(DOCUMENTS),
        "delete documents": delete(DOCUMENTS),
        "consume questions": consume(QUESTIONS),
        "answer questions": publish(REPLY_EXCHANGE, "x"),
    },
    "ingestion": {
        "consume runs": consume(RUNS),
        "purge runs": purge(RUNS),
        "delete runs": delete(RUNS),
        "ask questions": publish(QUESTION_EXCHANGE, QUESTIONS),
        "answer questions": publish(REPLY_EXCHANGE, "x"),
        "consume questions": consume(QUESTIONS),
        "hear hints": eavesdrop(HINTS),
    },
    "retrieval": {
        "publish wake-ups": publish(WAKE_UPS, RUNS),
        "consume runs": consume(RUNS),
        "consume documents": consume(DOCUMENTS),
        "read dead letters": get(DEAD_LETTERS),
        "send hints": publish(HINTS, "x"),
        "hear hints": eavesdrop(HINTS),
        "ask questions": publish(QUESTION_EXCHANGE, QUESTIONS),
    },
}
ATTEMPTS = [
    pytest.param(service, attempt, id=f"{service}: {what}")
    for service in SERVICES
    for what, attempt in {**BROKER_OF_EVERY_SERVICE, **BROKER_OF_ONE[service]}.items()
]


@pytest.fixture(scope="module")
async def topology(rabbitmq_url: str) -> str:
    """A virtual host with all queues and exchanges; its name."""
    async with await aio_pika.connect(rabbitmq_url) as connection, connection.channel() as channel:
        await declare_all(channel)
        await channel.declare_queue("another", durable=True)
    return rabbitmq_url.rsplit("/", 1)[1]


@pytest.mark.parametrize(("service", "attempt"), ATTEMPTS)
async def test_the_broker_refuses(stack: Stack, topology: str, service: str, attempt: Attempt) -> None:
    async with await aio_pika.connect(stack.rabbitmq.account_url(service, topology)) as connection:
        channel = await connection.channel(on_return_raises=True)
        with pytest.raises(ChannelAccessRefused):
            await attempt(channel)


def test_no_service_may_manage_the_broker(stack: Stack) -> None:
    users = dict(line.split("\t") for line in stack.rabbitmq.ctl("list_users", "--no-table-headers").splitlines())
    assert users == {"chatmind": "[administrator]", **{f"chatmind_{service}": "[]" for service in SERVICES}}


@pytest.mark.parametrize("user", ["guest:guest", "chatmind_gateway:guest"])
async def test_the_well_known_user_does_not_exist(stack: Stack, user: str) -> None:
    with pytest.raises(ProbableAuthenticationError):
        await aio_pika.connect(f"amqp://{user}@127.0.0.1:{stack.rabbitmq.port}/")
