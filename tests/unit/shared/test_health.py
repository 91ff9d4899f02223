"""Health over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from shared.health import Check, HealthServer, check_all
from shared.service import background
from tests.support.stack import free_port
from tests.support.waiting import eventually


async def good() -> bool:
    return True


async def bad() -> bool:
    return False


async def broken() -> bool:
    raise ConnectionRefusedError


@asynccontextmanager
async def serving(checks: Mapping[str, Check]) -> AsyncIterator[int]:
    port = free_port()

    async def listens() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    async with background([HealthServer("127.0.0.1", port, checks).run]):
        await eventually(listens, every=0.01)
        yield port


async def ask(port: int, head: bytes) -> tuple[int, bytes]:
    """Status and body; 0 when the connection is closed without an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    first, _, rest = answer.partition(b"\r\n")
    return int(first.split()[1]) if first else 0, rest.partition(b"\r\n\r\n")[2]


async def test_a_process_that_lives_and_is_not_ready() -> None:
    async with serving({"database": good, "broker": broken, "consumer": bad}) as port:
        assert await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n") == (200, b'{"alive":true}')
        status, body = await ask(port, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status == 503
    assert json.loads(body) == {"ready": False, "checks": {"database": True, "broker": False, "consumer": False}}


async def test_a_process_that_is_ready() -> None:
    async with serving({"database": good}) as port:
        status, body = await ask(port, b"GET /readyz HTTP/1.1\r\n\r\n")
    assert (status, json.loads(body)["ready"]) == (200, True)


async def test_nothing_else_is_served_and_odd_askers_do_no_harm() -> None:
    async with serving({}) as port:
        assert (await ask(port, b"GET /secret HTTP/1.1\r\n\r\n"))[0] == 404
        assert (await ask(port, b"POST /healthz HTTP/1.1\r\n\r\n"))[0] == 404
        assert (await ask(port, b"\xff\xfe\r\n\r\n"))[0] == 404
        assert (await ask(port, b"x" * 100_000))[0] == 0
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        assert (await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == 200
        silent.close()


async def test_checks_run_side_by_side() -> None:
    both = asyncio.Barrier(2)

    async def meets_the_other() -> bool:
        await both.wait()
        return True

    assert (await check_all({"a": meets_the_other, "b": meets_the_other})).ready
