"""Text deltas as hints: gathered for a moment, so that a fast model doesn't flood the broker."""

import asyncio
from uuid import UUID

from shared.contracts.hints import MessageDelta
from shared.hints import HintSender


class DeltaGatherer:
    """Sends a message's text in pieces, each with the offset (in characters) at which it goes."""

    def __init__(self, session_id: UUID, hints: HintSender, interval: float) -> None:
        self._session_id = session_id
        self._hints = hints
        self._interval = interval
        self._message_id: UUID | None = None
        self._offset = 0
        self._waiting: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, message_id: UUID, text: str) -> None:
        """Takes text of a message; another message id begins at offset 0."""
        if message_id != self._message_id:
            self.flush()
            self._message_id, self._offset = message_id, 0
        self._waiting.append(text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self.flush)

    def flush(self) -> None:
        """Sends what is waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._message_id is not None:
            text = "".join(self._waiting)
            self._hints.send(
                MessageDelta(stream_id=self._session_id, message_id=self._message_id, offset=self._offset, text=text)
            )
            self._offset += len(text)
            self._waiting.clear()
