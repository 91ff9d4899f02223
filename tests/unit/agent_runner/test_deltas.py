"""Deltas: pieces with offsets that make the text again."""

import asyncio

from services.agent_runner.deltas import DeltaGatherer
from shared.contracts.hints import MessageDelta
from shared.hints import HintMessage
from shared.ids import new_id


class Hints:
    """Remembers what was sent."""

    def __init__(self) -> None:
        self.sent: list[MessageDelta] = []
        self.arrived = asyncio.Event()

    def send(self, hint: HintMessage) -> None:
        assert isinstance(hint, MessageDelta)
        self.sent.append(hint)
        self.arrived.set()


async def test_text_is_gathered_and_offsets_count_characters() -> None:
    hints, message_id = Hints(), new_id()
    deltas = DeltaGatherer(new_id(), new_id(), hints, 0.01)
    for piece in ("订单", "状态", "机"):
        deltas.add(message_id, piece)
    await asyncio.wait_for(hints.arrived.wait(), 5)
    deltas.add(message_id, "!")
    deltas.flush()
    deltas.flush()
    assert [(d.offset, d.text) for d in hints.sent] == [(0, "订单状态机"), (5, "!")]


async def test_a_message_that_is_cut_off_is_what_was_sent_of_it() -> None:
    hints, message_id = Hints(), new_id()
    deltas = DeltaGatherer(new_id(), new_id(), hints, 60)
    deltas.add(message_id, "sent ")
    deltas.flush()
    deltas.add(message_id, "and waiting")
    assert deltas.cut() == (message_id, "sent and waiting")
    assert "".join(delta.text for delta in hints.sent) == "sent and waiting"
    assert deltas.cut() is None


async def test_a_message_that_is_complete_can_not_be_cut_off() -> None:
    deltas = DeltaGatherer(new_id(), new_id(), Hints(), 60)
    deltas.add(new_id(), "whole")
    deltas.complete()
    assert deltas.cut() is None


async def test_another_message_begins_at_zero() -> None:
    hints = Hints()
    deltas = DeltaGatherer(new_id(), new_id(), hints, 60)
    first, second = new_id(), new_id()
    deltas.add(first, "half")
    deltas.add(second, "whole")
    deltas.flush()
    assert [(d.message_id, d.offset, d.text) for d in hints.sent] == [(first, 0, "half"), (second, 0, "whole")]
