"""Server-sent events, read as they arrive (WHATWG HTML, section 9.2.6), as far as chat streams use them."""

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventReader:
    """Turns the bytes of an event stream into the `data` of its events.

    Lines are cut as bytes and decoded whole, so that a character split over two reads comes out right.
    """

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._data: list[bytes] = []
        self._at_start = True

    def feed(self, read: bytes) -> list[bytes]:
        """The data of the events that `read` completes."""
        if b"\n" not in read and b"\r" not in read:
            self._unfinished.append(read)
            return []
        text = b"".join((*self._unfinished, read))
        # A CR at the end may be half of a CRLF: it waits for what follows.
        held = text.endswith(b"\r")
        *lines, rest = _LINE_END.split(text[:-1] if held else text)
        self._unfinished = [rest, b"\r"] if held else [rest]
        if self._at_start and lines:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        return [event for line in lines if (event := self._line(line)) is not None]

    def close(self) -> list[bytes]:
        """What stands at the end without its blank line; servers that hang up right after an event are forgiven."""
        return self.feed(b"\n\n")

    def _line(self, line: bytes) -> bytes | None:
        if line.startswith(b"data:"):
            value = line[5:]
            self._data.append(value[1:] if value.startswith(b" ") else value)
        elif not line and self._data:
            event = b"\n".join(self._data)
            self._data = []
            return event
        return None
