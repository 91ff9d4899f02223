"""The process that parses, seen from inside: a template that forks a child for every few documents.

The template has everything imported, so that a fork costs a few milliseconds where a new interpreter would cost some
hundred; it never touches a document itself. It knows nothing of the service: its environment is empty, and it imports
neither the database's nor the broker's libraries. It gives up network, files and privileges before the first fork.

Conversation on the control socket: first, from the template, a line of JSON that says what it gave up; then a byte with a
connection's descriptor for each child to fork; its end ends the template. On a connection, any number of times: two
lengths, the request's head as JSON, the document's bytes; back comes a length and the answer as JSON. When the child has
died, its wait status in four bytes comes last, from the template. A connection closed by the other side kills its child.
"""

import gc
import math
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Final, NoReturn

import orjson
from pydantic import BaseModel

from services.ingestion.pages import PageRange
from services.ingestion.parsing.documents import parse
from services.ingestion.parsing.limits import ParseCrashed, ParseLimits, ParseMemory, TooManyPieces
from services.ingestion.parsing.ocr import OcrSettings
from services.ingestion.parsing.sandbox import confine
from services.ingestion.sections import Piece
from services.ingestion.splitting import split
from services.ingestion.text import DocumentError, TextTooLarge
from shared.contracts.knowledge_settings import KnowledgeBaseSettings

REQUEST_LENGTHS: Final = struct.Struct("!IQ")
ANSWER_LENGTH: Final = struct.Struct("!Q")
WAIT_STATUS: Final = struct.Struct("!i")

_Fields = tuple[str, tuple[str, ...], str, int, int, int, PageRange | None]


class ParseRequest(BaseModel):
    """The head of a request; the document's bytes follow it."""

    filename: str
    media_type: str | None
    settings: KnowledgeBaseSettings
    limits: ParseLimits
    ocr: OcrSettings


def answer(request: ParseRequest, data: bytes) -> bytes:
    """Parse, clean and split; return `{"pieces": [[title, path, content, start, end, header_chars, pages, parent], ...],
    "parents": [[title, path, content, start, end, header_chars, pages], ...], "warnings": [{"code", "message"}, ...],
    "media_type": "..."}`, `pages` being the first and the last or null, `parent` an index or null, or `{"failure": {...}}`.
    """
    try:
        payload = _pieces(request, data)
    except DocumentError as error:
        return _failure(error)
    except MemoryError:
        return _failure(ParseMemory(f"parsing needs more than {request.limits.memory_bytes} bytes of memory"))
    except Exception as error:  # its text may quote the document: only its name goes out
        return _failure(ParseCrashed(f"parsing failed: {type(error).__name__}"))
    if len(payload) > request.limits.max_output_bytes:
        return _failure(TextTooLarge(f"the chunks have {len(payload)} bytes together"))
    return payload


def _pieces(request: ParseRequest, data: bytes) -> bytes:
    limits = request.limits
    document = parse(
        data,
        filename=request.filename,
        media_type=request.media_type,
        settings=request.settings,
        limits=limits,
        ocr=request.ocr,
    )
    pieces, parents = [], list[_Fields]()
    for piece in split(document, request.settings.splitting):
        if piece.ordinal >= limits.max_pieces:
            raise TooManyPieces(f"the document would have more than {limits.max_pieces} chunks")
        if piece.parent and piece.parent.ordinal == len(parents):
            parents.append(_fields(piece.parent))
        pieces.append((*_fields(piece), piece.parent and piece.parent.ordinal))
    return orjson.dumps(
        {"pieces": pieces, "parents": parents, "warnings": document.notes, "media_type": document.media_type}
    )


def _fields(piece: Piece) -> _Fields:
    return piece.title, piece.heading_path, piece.content, piece.start, piece.end, piece.header_chars, piece.pages


def _failure(error: DocumentError) -> bytes:
    return orjson.dumps({"failure": error.info.model_dump()})


def run_child(connection: socket.socket) -> NoReturn:
    """Serve requests under their limits until the other side goes away, and exit."""
    status = 1
    try:
        while lengths := connection.recv(REQUEST_LENGTHS.size, socket.MSG_WAITALL):
            head_length, data_length = REQUEST_LENGTHS.unpack(lengths)
            request = ParseRequest.model_validate_json(_receive(connection, head_length))
            _limit(request.limits)
            payload = answer(request, _receive(connection, data_length))
            connection.sendall(ANSWER_LENGTH.pack(len(payload)))
            connection.sendall(payload)
            signal.setitimer(signal.ITIMER_REAL, 0)
        status = 0
    finally:
        os._exit(status)  # the template's own clean-up isn't the child's business


def _limit(limits: ParseLimits) -> None:
    """Bound the document that follows. What breaks a limit of time dies by a signal that native code can't outstay."""
    signal.setitimer(signal.ITIMER_REAL, limits.wall_seconds)
    _set_limit(resource.RLIMIT_CPU, math.ceil(time.process_time()) + limits.cpu_seconds)
    _set_limit(resource.RLIMIT_AS, limits.memory_bytes)
    _set_limit(resource.RLIMIT_FSIZE, 0)
    _set_limit(resource.RLIMIT_CORE, 0)


def _set_limit(kind: int, soft: int) -> None:
    with suppress(ValueError, OSError):  # not every system knows every limit
        resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))


def _receive(connection: socket.socket, length: int) -> bytes:
    received = connection.recv(length, socket.MSG_WAITALL) if length else b""
    if len(received) < length:
        raise EOFError("the other side went away")
    return received


class Template:
    """Forks children, reports how they ended, and kills those that nobody waits for."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, tuple[int, socket.socket]] = {}  # by the connection's descriptor
        self._poll = select.poll()
        self._died, wake = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._died, select.POLLIN)
        self._wake = wake
        self._nothing = os.open(os.devnull, os.O_RDWR)

    def run(self) -> None:
        """Serve until the control socket is closed."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._control.fileno():
                    if not self._accept():
                        return self._kill_all()
                elif descriptor == self._died.fileno():
                    self._died.recv(4096)
                elif descriptor in self._children:
                    os.kill(self._children[descriptor][0], signal.SIGKILL)
                    self._poll.unregister(descriptor)
            self._reap()

    def _accept(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        if not message or not descriptors:
            return False
        connection = socket.socket(fileno=descriptors[0])
        child = os.fork()
        if child == 0:
            self._become_child(connection)
        self._children[connection.fileno()] = (child, connection)
        self._poll.register(connection, 0)  # POLLHUP is always reported
        return True

    def _become_child(self, connection: socket.socket) -> NoReturn:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        for _, other in self._children.values():
            other.close()
        os.dup2(self._nothing, 1)
        os.dup2(self._nothing, 2)
        run_child(connection)

    def _reap(self) -> None:
        for descriptor, (child, connection) in list(self._children.items()):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == 0:
                continue
            del self._children[descriptor]
            with suppress(KeyError):
                self._poll.unregister(descriptor)
            with suppress(OSError):  # nobody waits any more
                connection.sendall(WAIT_STATUS.pack(status))
            connection.close()

    def _kill_all(self) -> None:
        for child, _ in self._children.values():
            os.kill(child, signal.SIGKILL)


def main() -> None:
    """Be the template on the control socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service decides when to stop, also at a terminal
    control = socket.socket(fileno=int(sys.argv[1]))
    template = Template(control)
    control.sendall(orjson.dumps(confine()) + b"\n")
    gc.freeze()  # children share these objects' pages as long as no collection writes to them
    template.run()


if __name__ == "__main__":
    main()
