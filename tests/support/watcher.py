"""A client of a session's events that shows text as it comes, by the documented rules (docs/decisions/0012-tool-effects.md)."""

from dataclasses import dataclass, field

from tests.support.sse import SseEvent


@dataclass
class Watcher:
    """Text that has no message when its run ends, or begins anew, is void; what was shown of a message is what the message says."""

    events: list[SseEvent] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)  # text by message
    void: list[str] = field(default_factory=list)
    _open: str | None = None  # the message that text is shown of, and its run
    _open_run: str | None = None

    def take(self, event: SseEvent) -> None:
        data = event.data
        if event.type == "message.delta":
            self._show(data["message_id"], data["offset"], data["text"])
            self._open_run = data["run_id"]
            return
        self.events.append(event)
        if event.type == "message.created" and data["message"]["role"] == "assistant":
            message = data["message"]
            seen = self.shown.get(message["id"])
            assert seen in (None, message["content"]), f"streamed {seen!r}, stored {message['content']!r}"
            self.shown[message["id"]] = message["content"]
            self._open = None
        elif (event.type == "run.finished" or data.get("state") == "PLANNING") and data["run_id"] == self._open_run:
            self._make_void()

    def _show(self, message_id: str, offset: int, text: str) -> None:
        if message_id != self._open:
            self._make_void()
            self._open = message_id
        assert offset == len(self.shown.get(message_id, "")), "a delta is missing"
        self.shown[message_id] = self.shown.get(message_id, "") + text

    def _make_void(self) -> None:
        if self._open is not None:
            self.void.append(self.shown.pop(self._open))
            self._open = None

    def count(self, kind: str) -> int:
        return sum(event.type == kind for event in self.events)
