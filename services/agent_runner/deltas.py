"""Text deltas as hints: gathered for a moment, so that a fast model doesn't flood the broker."""

import asyncio
from uuid import UUID

from shared.contracts.hints import MessageDelta
from shared.hints import HintSender


class DeltaGatherer:
    """Sends a message's text in pieces, each with the offset (in characters) at which it goes."""

    def __init__(self, session_id: UUID, run_id: UUID, hints: HintSender, interval: float) -> None:
        self._session_id = session_id
        self._run_id = run_id
        self._hints = hints
        self._interval = interval
        self._message_id: UUID | None = None
        self._sent: list[str] = []
        self._offset = 0
        self._waiting: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, message_id: UUID, text: str) -> None:
        """Takes text of a message; another message id begins at offset 0."""
        if message_id != self._message_id:
            self.complete()
            self._message_id = message_id
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
                MessageDelta(
                    stream_id=self._session_id,
                    run_id=self._run_id,
                    message_id=self._message_id,
                    offset=self._offset,
                    text=text,
                )
            )
            self._offset += len(text)
            self._sent.append(text)
            self._waiting.clear()

    def complete(self) -> None:
        """Sends what is waiting; the message has all of its text."""
        self.flush()
        self._message_id, self._offset = None, 0
        self._sent.clear()

    def cut(self) -> tuple[UUID, str] | None:
        """Sends what is waiting of a message that was cut off, and returns its id and all that was sent of it; None when there is none."""
        self.flush()
        message_id, text = self._message_id, "".join(self._sent)
        self.complete()
        return (message_id, text) if message_id is not None and text else None
