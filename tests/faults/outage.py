"""What clients see while a server is away, and how long its return takes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import httpx

from tests.faults.bed import Bed
from tests.faults.clock import lasts
from tests.faults.conversation import conversation, new_wish
from tests.faults.model import Wish
from tests.faults.tally import Tally

ACCEPTED_OR_REFUSED = (202, 429, 503)


async def seconds_to_ready(bed: Bed, *names: str, within: float = 90) -> float:
    """How long these services (all, without names) take from now until they are ready."""
    began = time.monotonic()
    await bed.ready(*names, within=within)
    return time.monotonic() - began


@asynccontextmanager
async def posting(bed: Bed, rng: Random, tally: Tally, *, seconds: float, limit: float = 2.0) -> AsyncIterator[None]:
    """Posts messages once before the block and then for `seconds` of it, without any retry: each is accepted or refused with a code
    within `limit` seconds. After the block what was accepted must end.
    """
    client = rng.choice(bed.clients)
    async with conversation(client, tally) as talk:
        answered: list[tuple[str, Wish]] = []
        slowest = 0.0
        ends = time.monotonic() + seconds

        async def post_on() -> None:
            nonlocal slowest
            while time.monotonic() < ends:
                wish = new_wish(client)
                began = time.monotonic()
                tally.attempted += 1
                try:
                    answer = await client.any_gateway().post(
                        f"/api/sessions/{talk.session_id}/messages", json={"content": wish.in_words("meanwhile")}
                    )
                except httpx.HTTPError as error:
                    tally.surprise(f"a POST failed: {type(error).__name__}")
                    continue
                slowest = max(slowest, time.monotonic() - began)
                client.inspect(answer.status_code, answer.text)
                tally.require(
                    answer.status_code in ACCEPTED_OR_REFUSED, f"status {answer.status_code}: {answer.text[:200]}"
                )
                if answer.status_code == 202:
                    tally.acknowledged += 1
                    talk.accepted.append(answer.json()["run"]["id"])
                    answered.append((talk.accepted[-1], wish))
                await lasts(rng.uniform(0.5, 1.5))

        task = asyncio.ensure_future(post_on())
        try:
            yield
        finally:
            await task
        tally.require(slowest <= limit, f"the slowest POST took {slowest:.1f} s")
        tally.note(slowest_post=round(slowest, 2), posts=len(answered))
        for run_id, wish in answered:
            await talk.expect(run_id, wish, within=90)
