"""As much of PostgreSQL's protocol 3 as it takes to find one statement and keep its reply back.

After its start-up a client sends messages of one type byte, a length (big-endian, its own four bytes included) and a body: Q carries SQL,
P (Parse) a statement's name and SQL, B (Bind) a portal's and a statement's name. The server ends the reply to a statement, after its
commit where it has one, with Z (ReadyForQuery).
"""

import struct

_PROTOCOL_3 = 3 << 16
_READY = b"Z"


class MessageReader:
    """Cuts a stream of bytes into messages (type, body). With `greeted` False it skips the untyped messages of a client's start-up."""

    def __init__(self, *, greeted: bool) -> None:
        self._greeted = greeted
        self._waiting = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The messages that are complete now."""
        self._waiting += data
        messages: list[tuple[bytes, bytes]] = []
        while True:
            head = 1 if self._greeted else 0
            if len(self._waiting) < head + 4:
                return messages
            (length,) = struct.unpack_from("!I", self._waiting, head)
            if len(self._waiting) < head + length:
                return messages
            kind, body = self._waiting[:head], self._waiting[head + 4 : head + length]
            self._waiting = self._waiting[head + length :]
            if self._greeted:
                messages.append((kind, body))
            else:  # a question for TLS comes before it, and is answered by a single byte
                self._greeted = struct.unpack_from("!I", body)[0] == _PROTOCOL_3


class ReplyWatch:
    """Follows one connection: `sees_statement` its client's bytes, `swallows` its server's."""

    def __init__(self) -> None:
        self._asks = MessageReader(greeted=False)
        self._answers = MessageReader(greeted=True)
        self._statements: dict[bytes, bytes] = {}
        self._armed = False
        self.done = False

    def sees_statement(self, data: bytes, text: bytes | None) -> bool:
        """True when a statement with `text` is among what the client sends: the reply to it is kept back."""
        try:
            found = [self._is_wanted(kind, body, text) for kind, body in self._asks.feed(data)]
        except (struct.error, ValueError):  # not PostgreSQL
            return False
        if any(found):
            self._armed = True
        return any(found)

    def swallows(self, data: bytes) -> bool:
        """Whether these bytes of the server are to be kept back; `done` tells that the reply was complete."""
        if not self._armed:
            return False
        self.done = self.done or any(kind == _READY for kind, _ in self._answers.feed(data))
        return True

    def _is_wanted(self, kind: bytes, body: bytes, text: bytes | None) -> bool:
        if kind == b"P":
            name, sql, _ = body.split(b"\0", 2)
            self._statements[name] = sql
            return False
        if text is None:
            return False
        if kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            return text in self._statements.get(name, b"")
        return kind == b"Q" and text in body
