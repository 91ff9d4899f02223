"""The model's endpoint is away, busy, slow or talks nonsense: cases 43 to 50 and 52."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from random import Random
from typing import Any

from tests.faults.bed import Bed
from tests.faults.catalogue import case
from tests.faults.client import TenantClient
from tests.faults.conversation import Conversation, conversation, new_wish
from tests.faults.model import Wish
from tests.faults.tally import Tally
from tests.support.scripted_replies import last_user_text, stream_event
from tests.support.waiting import eventually

HASTY_TOTAL = 12.0
"""What the bed's models file gives the model `hasty` for a whole call, in seconds."""
SLACK = 6.0
FOR_EVER = 1_000_000


async def expect_error(talk: Conversation, message: Wish | str, *codes: str, within: float = 60) -> float:
    """The run of this message ends with one of these error codes; the seconds that takes."""
    began = time.monotonic()
    run_id = await talk.say(message)
    end = await talk.ended(run_id, within)
    took = time.monotonic() - began
    if end is None:
        return took
    code = end["error"] and end["error"]["code"]
    if end["reason"] == "error" and code in codes:
        talk.tally.ok += 1
    else:
        talk.tally.surprise(f"run {run_id} ended with {end['reason']} {end['error']}, not {' or '.join(codes)}")
    return took


async def expect_next(talk: Conversation) -> None:
    """The session's next message is answered as if nothing had been."""
    wish = new_wish(talk.client)
    await talk.expect(await talk.say(wish), wish)


def faulty(client: TenantClient, times: int = FOR_EVER, **fault: Any) -> Wish:
    """A wish whose first reply is this one, so many times."""
    return new_wish(client, fault=fault, fault_times=times)


async def hung_up(bed: Bed, wish: Wish, within: float = 5) -> bool:
    """Whether the newest request of a wish sees its client hang up."""

    async def is_gone() -> bool:
        asked = [request for request in bed.model.requests if wish.id in last_user_text(request["body"])]
        return bool(asked) and asked[-1]["disconnected"]

    try:
        return await eventually(is_gone, within=within)
    except AssertionError:
        return False


@case(43, "Connection refused, unknown host, no TLS")
async def no_connection(bed: Bed, rng: Random, trials: int) -> Tally:
    """Bounded retries, then llm_unavailable; each within the model's total time."""
    tally = Tally()
    for _ in range(trials):
        for model in ("nobody", "nowhere", "untrusted"):
            async with conversation(rng.choice(bed.clients), tally, model=model) as talk:
                took = await expect_error(talk, new_wish(talk.client), "llm_unavailable", "llm_timeout")
                tally.require(took <= 10 + SLACK, f"{model} took {took:.1f} s of 10")
                tally.note(**{f"{model}_seconds": round(took, 1)})
    return tally


@case(44, "429 with Retry-After in seconds, as a date, without, for a day", seconds=240)
async def rate_limited(bed: Bed, rng: Random, trials: int) -> Tally:
    """It waits as long as it is told, 60 s at most, and never longer than the call may take; then asks once more."""
    tally = Tally()
    for _ in range(trials):
        async with conversation(rng.choice(bed.clients), tally, model="hasty") as talk:
            soon = format_datetime(datetime.now(UTC) + timedelta(seconds=4), usegmt=True)
            for header, least, most in ((soon, 2, 6), ("2", 2, 5), (None, 0, 3), ("soon", 0, 3)):
                took = await _retried(bed, talk, header)
                tally.require(least <= took <= most + SLACK, f"Retry-After: {header}: asked again after {took:.1f} s")
            day = faulty(talk.client, status=429, headers={"Retry-After": "86400"})
            took = await expect_error(talk, day, "llm_rate_limited")
            tally.require(took <= SLACK, f"a call of {HASTY_TOTAL:g} s waited {took:.1f} s for tomorrow")
            await expect_next(talk)
        async with conversation(rng.choice(bed.clients), tally) as talk:  # whose calls may take 300 s
            took = await _retried(bed, talk, "86400")
            tally.require(59 <= took <= 60 + SLACK, f"asked again after {took:.1f} s, not 60")
    return tally


async def _retried(bed: Bed, talk: Conversation, header: str | None) -> float:
    """Seconds from one 429 to the answer."""
    wish = faulty(talk.client, 1, status=429, headers={} if header is None else {"Retry-After": header})
    began = time.monotonic()
    run_id = await talk.say(wish)
    await talk.expect(run_id, wish, within=90)
    talk.tally.require(bed.model.asked[wish.id, 0] == 2, f"asked {bed.model.asked[wish.id, 0]} times")
    return time.monotonic() - began


@case(45, "500, 502 and 503 twice, then fine")
async def failing_twice(bed: Bed, rng: Random, trials: int) -> Tally:
    """One think step, and its text once."""
    tally = Tally()
    for _ in range(trials):
        async with conversation(rng.choice(bed.clients), tally, model="hasty") as talk:
            for status in (500, 502, 503):
                wish = faulty(talk.client, 2, status=status, body="<html>no</html>")
                run_id = await talk.say(wish)
                await talk.expect(run_id, wish)
                tally.require(bed.model.asked[wish.id, 0] == 3, f"asked {bed.model.asked[wish.id, 0]} times")
                steps = await talk.client.items(f"/api/runs/{run_id}/steps")
                tally.require([step["state"] for step in steps] == ["done"], f"the steps are {steps}")
            answers = [message for message in talk.messages() if message["role"] == "assistant"]
            tally.require(len(answers) == 3, f"{len(answers)} answers")
    return tally


_STREAM = {"Content-Type": "text/event-stream"}
_HTML = {"Content-Type": "text/html"}
NONSENSE: dict[str, dict[str, Any]] = {
    "HTML": {"body": "<html><body>Welcome to the hotel's network</body></html>", "headers": _HTML},
    "HTML as a stream": {"body": "<html>\n\n</html>\n\n", "headers": _STREAM},
    "nothing": {"body": ""},
    "an empty stream": {"body": "", "headers": _STREAM},
    "half a JSON": {"body": '{"choices": [{"mess'},
    "a list": {"body": "[1, 2]"},
    "a number of 10,000 digits": {"body": "1" * 10_000},
    "deep JSON": {"body": "[" * 50_000},
    "a wrong shape": {"body": 'data: {"choices": [{"delta": {"content": 7}}]}\n\n', "headers": _STREAM},
    "lines of garbage": {"body": "data: \u0000\u0001\n\ndata: }{\n\nevent: x\n\n" * 50, "headers": _STREAM},
    "a broken line": {"text": "the beginning of it", "chunk_chars": 4, "fault": "garbage", "after": 2},
    "an error object": {"text": "the beginning of it", "chunk_chars": 4, "fault": "error", "after": 2},
}


@case(46, "200 with HTML, nothing, broken JSON, a BOM, lines of garbage", quick=True)
async def nonsense(bed: Bed, rng: Random, trials: int) -> Tally:
    """The step fails with a code, nothing crashes, and the session goes on. A mark of byte order before a stream is no fault."""
    tally = Tally()
    for _ in range(trials):
        async with conversation(rng.choice(bed.clients), tally, model="hasty") as talk:
            for fault in NONSENSE.values():
                await expect_error(talk, faulty(talk.client, **fault), "llm_bad_response", "llm_unavailable")
            with_mark = new_wish(talk.client)
            body = stream_event({"content": with_mark.text}).decode() + stream_event({}, "stop").decode()
            with_mark.fault = {"body": f"\ufeff{body}", "headers": _STREAM}
            await talk.expect(await talk.say(with_mark), with_mark)
            await expect_next(talk)
    return tally


@case(47, "The stream ends half way, without a finish_reason", quick=True)
async def cut_stream(bed: Bed, rng: Random, trials: int) -> Tally:
    """A failure; a tool call that came with it is not made."""
    tally = Tally()
    call = {"name": "ledger_once", "arguments": {"amount": 1}}
    for _ in range(trials):
        async with conversation(rng.choice(bed.clients), tally, model="hasty", tools=["ledger_once"]) as talk:
            for fault in ("cut", "end"):
                half = faulty(talk.client, text="half of it", chunk_chars=3, fault=fault, after=rng.randint(1, 3))
                await expect_error(talk, half, "llm_bad_response", "llm_unavailable")
                whole = faulty(talk.client, tool_calls=[call], fault=fault, after=99)
                await expect_error(talk, whole, "llm_bad_response", "llm_unavailable")
            tally.require(not bed.ledger.entries, f"a call of a reply without an end was made: {bed.ledger.entries}")
            await expect_next(talk)
    return tally


@case(48, "The stream goes silent, at once and half way")
async def silent_stream(bed: Bed, rng: Random, trials: int) -> Tally:
    """llm_timeout after the limits for the first byte (here 4 s) and between two reads (here 3 s), and the connection is closed."""
    tally = Tally()
    for _ in range(trials):
        async with conversation(rng.choice(bed.clients), tally, model="hasty") as talk:
            half = {"text": "half of it", "chunk_chars": 3, "fault": "silent", "after": 2}
            for fault, limit in (({"fault": "hang"}, 4), (half, 3)):
                wish = faulty(talk.client, **fault)
                took = await expect_error(talk, wish, "llm_timeout")
                tally.require(limit <= took <= limit + SLACK, f"the limit of {limit} s took {took:.1f} s")
                tally.require(await hung_up(bed, wish), "the connection to the model stays open")
            await expect_next(talk)
    return tally


@case(49, "One token a second, for ever")
async def endless_stream(bed: Bed, rng: Random, trials: int) -> Tally:
    """llm_timeout after the limit for the whole call (here 12 s), and the connection is closed."""
    tally = Tally()
    for _ in range(trials):
        async with conversation(rng.choice(bed.clients), tally, model="hasty") as talk:
            wish = faulty(talk.client, text="x" * 600, chunk_chars=1, delay_ms=1000)
            took = await expect_error(talk, wish, "llm_timeout")
            tally.require(HASTY_TOTAL <= took <= HASTY_TOTAL + SLACK, f"the limit took {took:.1f} s")
            tally.require(await hung_up(bed, wish), "the connection to the model stays open")
            await expect_next(talk)
    return tally


@case(50, "10 MB of text, 1 MB of arguments, 200 calls")
async def too_much(bed: Bed, rng: Random, trials: int) -> Tally:
    """llm_reply_too_large; nothing of it is executed."""
    tally = Tally()
    large = f'{{"amount": 1, "note": "{"x" * 1_000_000}"}}'
    replies: dict[str, dict[str, Any]] = {
        "text": {"text": "0123456789" * 1000, "repeat": 1000, "chunk_chars": 65_536, "delay_ms": 0.1},
        "arguments": {
            "tool_calls": [{"name": "ledger_once", "arguments": large}],
            "chunk_chars": 4096,
            "delay_ms": 0.1,
        },
        "calls": {
            "tool_calls": [{"name": "ledger_once", "arguments": {"amount": n}} for n in range(200)],
            "delay_ms": 0.1,
        },
    }
    for trial in range(trials):
        async with conversation(rng.choice(bed.clients), tally, model="hasty", tools=["ledger_once"]) as talk:
            for name, reply in replies.items():
                words = f"{talk.client.canary} wants too much {name} {trial}"
                bed.model.add(match=words, **reply)  # too large to be carried by a message
                await expect_error(talk, words, "llm_reply_too_large")
            tally.require(not bed.ledger.entries, f"{len(bed.ledger.entries)} calls were made")
            await expect_next(talk)
    return tally


@case(52, "The length limit falls inside a tool call")
async def truncated_call(bed: Bed, rng: Random, trials: int) -> Tally:
    """The call is not made, not even when its arguments look complete."""
    tally = Tally()
    for _ in range(trials):
        async with conversation(rng.choice(bed.clients), tally, model="hasty", tools=["ledger_once"]) as talk:
            for arguments in ('{"amount": 1', '{"amount": 1}'):
                calls = [{"name": "ledger_once", "arguments": arguments}]
                wish = faulty(talk.client, text="I book it.", tool_calls=calls, finish_reason="length")
                await expect_error(talk, wish, "llm_truncated_tool_call")
            tally.require(not bed.ledger.entries, f"{len(bed.ledger.entries)} calls were made")
            await expect_next(talk)
    return tally
