"""A scripted model that does what the message asks for, so that many clients need no script beside their messages."""

import re
from collections import Counter
from typing import Any

from pydantic import BaseModel, ConfigDict

from tests.support.scripted_model import ScriptedModel
from tests.support.scripted_replies import ScriptedCall, ScriptedReply, last_user_text
from tests.support.waiting import eventually

_WISH = re.compile(r"<<<(.*)>>>", re.DOTALL)
_REMEMBERED_REQUESTS = 400


class Wish(BaseModel):
    """What the model is to do with a message: one reply with tool calls for each entry of `calls`, then an answer.

    `fault` (fields of ScriptedReply) replaces the reply of step `fault_step` (from 0) the first `fault_times` times that it is asked
    for. The gate stands in the answer's stream after `gate_after` pieces.
    """

    model_config = ConfigDict(extra="forbid")

    id: str = ""
    text: str = "done"
    repeat: int = 1
    calls: list[list[ScriptedCall]] = []
    delay_ms: float = 0
    chunk_chars: int = 16
    gate: str = ""
    gate_after: int = 1
    fault: dict[str, Any] | None = None
    fault_times: int = 1
    fault_step: int = 0

    @property
    def answer(self) -> str:
        return self.text * self.repeat

    def in_words(self, words: str) -> str:
        """A message that carries the wish."""
        return f"{words} <<<{self.model_dump_json(exclude_defaults=True)}>>>"


class WishfulModel(ScriptedModel):
    """`asked[(wish id, step)]` counts the requests; `refused` tells of those that a strict endpoint would have refused.

    A message without a wish is answered as ScriptedModel does.
    """

    def forget(self) -> None:
        super().forget()
        self.asked: Counter[tuple[str, int]] = Counter()
        self.refused: list[str] = []

    def forget_wishes(self) -> None:
        """Opens all gates for those who stand there, and forgets the rest."""
        for gate in self._gates.values():
            gate.opened.set()
        refused = self.refused
        self.forget()
        self.refused = refused

    def open(self, gate: str) -> None:
        """Lets those at a gate go on, and all who come after them."""
        self.gate(gate).opened.set()

    async def someone_at(self, gate: str, within: float = 30) -> None:
        """Returns when a reply stands at a gate."""

        async def waits() -> bool:
            return self.gate(gate).waiting > 0

        await eventually(waits, within=within)

    def _reply_to(self, body: dict[str, Any]) -> ScriptedReply:
        if problems := self.requests[-1].get("invalid_history"):
            self.refused.append(f"{problems} in {body['messages']!r:.500}")
        del self.requests[:-_REMEMBERED_REQUESTS]
        found = _WISH.search(last_user_text(body))
        if found is None:
            return super()._reply_to(body)
        wish = Wish.model_validate_json(found[1])
        step = _step(body["messages"])
        self.asked[wish.id, step] += 1
        if wish.fault is not None and step == wish.fault_step and self.asked[wish.id, step] <= wish.fault_times:
            return ScriptedReply.model_validate(wish.fault)
        if step < len(wish.calls):
            return ScriptedReply(tool_calls=wish.calls[step], delay_ms=wish.delay_ms)
        return ScriptedReply(
            text=wish.text,
            repeat=wish.repeat,
            delay_ms=wish.delay_ms,
            chunk_chars=wish.chunk_chars,
            gate=wish.gate,
            after=wish.gate_after,
        )


def _step(messages: list[dict[str, Any]]) -> int:
    """How many replies with tool calls this run has had."""
    step = 0
    for message in messages:
        if message["role"] == "user":
            step = 0
        elif message.get("tool_calls"):
            step += 1
    return step
