"""Requests that come twice, at once, with another's key: cases 59 to 61."""

import asyncio
from random import Random
from typing import Any

import httpx

from shared.ids import new_id
from tests.faults.bed import Bed
from tests.faults.catalogue import case
from tests.faults.clock import lasts
from tests.faults.conversation import Conversation, conversation, new_wish
from tests.faults.model import Wish
from tests.faults.tally import Tally

KEY_SECONDS = 3


async def post(talk: Conversation, wish: Wish, gateway: int, key: str | None = None) -> httpx.Response:
    """One POST of a wish's message to one gateway, without any retry."""
    talk.tally.attempted += 1
    headers = {} if key is None else {"Idempotency-Key": key}
    path = f"/api/sessions/{talk.session_id}/messages"
    answer = await talk.client.gateways[gateway].post(path, json={"content": wish.in_words("once")}, headers=headers)
    talk.client.inspect(answer.status_code, answer.text)
    talk.tally.acknowledged += answer.status_code == 202
    return answer


def accept(talk: Conversation, *answers: httpx.Response) -> list[str]:
    """The runs of these answers, without repetition; the conversation counts on them from now on."""
    for answer in answers:
        talk.tally.require(answer.status_code == 202, f"status {answer.status_code}: {answer.text[:200]}")
    runs = list(dict.fromkeys(str(answer.json()["run"]["id"]) for answer in answers if answer.status_code == 202))
    talk.accepted += runs
    return runs


@case(59, "The same POST several times at once, with one Idempotency-Key", trials=20, quick=True)
async def at_once(bed: Bed, rng: Random, trials: int) -> Tally:
    """One run, and all get it."""
    tally = Tally()
    async with conversation(rng.choice(bed.clients), tally) as talk:
        for _ in range(trials):
            wish, key = new_wish(talk.client), str(new_id())
            answers = await asyncio.gather(*(post(talk, wish, number % 2, key) for number in range(4)))
            runs = accept(talk, *answers)
            tally.duplicated += len(runs) - 1
            tally.require(len({answer.text for answer in answers}) == 1, "the answers differ")
            await talk.expect(runs[0], wish)
            tally.ok += len(answers) - 1
    return tally


@case(60, "A key with another body, of another tenant, after its end")
async def reused(bed: Bed, rng: Random, trials: int) -> Tally:
    """409; independent; a new run."""
    tally = Tally()
    await bed.restart("gateway-0", CHATMIND_IDEMPOTENCY_HOURS=str(KEY_SECONDS / 3600))
    for _ in range(trials):
        mine, other = rng.sample(bed.clients, 2)
        async with conversation(mine, tally) as talk, conversation(other, tally) as elsewhere:
            key, wish = str(new_id()), new_wish(mine)
            [run_id] = accept(talk, await post(talk, wish, 1, key))
            conflict = await post(talk, new_wish(mine), 1, key)
            code = conflict.json().get("code")
            tally.require((conflict.status_code, code) == (409, "idempotency_conflict"), conflict.text[:200])
            others = new_wish(other)
            [others_run] = accept(elsewhere, await post(elsewhere, others, 1, key))
            await lasts(KEY_SECONDS + 0.5)
            [later] = accept(talk, await post(talk, wish, 0, key))
            tally.require(len({run_id, others_run, later}) == 3, "a run was answered twice")
            for where, run, wanted in ((talk, run_id, wish), (elsewhere, others_run, others), (talk, later, wish)):
                await where.expect(run, wanted)
    return tally


@case(61, "Messages to one session through two gateways at once", trials=5)
async def one_session(bed: Bed, rng: Random, trials: int) -> Tally:
    """All are answered, one after the other, in the order of acceptance."""
    tally = Tally()
    async with conversation(rng.choice(bed.clients), tally) as talk:
        for _ in range(trials):
            wishes = [new_wish(talk.client, delay_ms=20) for _ in range(6)]
            answers = await asyncio.gather(*(post(talk, wish, n % 2) for n, wish in enumerate(wishes)))
            runs = [accept(talk, answer)[0] for answer in answers]
            for run_id, wish in zip(runs, wishes, strict=True):
                await talk.expect(run_id, wish)
            tally.require(_ends(talk, runs) == _by_place(answers), "not in the order of acceptance")
    return tally


def _by_place(answers: list[httpx.Response]) -> list[str]:
    accepted: list[dict[str, Any]] = sorted(
        (answer.json() for answer in answers), key=lambda body: body["message"]["seq"]
    )
    return [str(body["run"]["id"]) for body in accepted]


def _ends(talk: Conversation, runs: list[str]) -> list[str]:
    ends = [str(event.data["run_id"]) for event in talk.events if event.type == "run.finished"]
    return [run_id for run_id in ends if run_id in runs]
