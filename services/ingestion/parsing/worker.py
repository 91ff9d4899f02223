"""Parsing in a process of its own, seen from the service: what a document does there can't hurt here."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import orjson
import structlog

from services.ingestion.parsing.child import ANSWER_LENGTH, REQUEST_LENGTHS, WAIT_STATUS, ParseRequest
from services.ingestion.parsing.limits import ParseCrashed, ParseLimits, ParseTimeout
from services.ingestion.parsing.ocr import OcrSettings
from services.ingestion.sections import Note, ParsedFile, Piece
from services.ingestion.text import DocumentError
from shared.contracts.knowledge_settings import KnowledgeBaseSettings
from shared.errors import ErrorInfo

log = structlog.get_logger()

_ROOT: Final = Path(__file__).parents[3]
_GRACE_SECONDS: Final = 5.0  # the child ends itself first; this is for one that can't
_START_SECONDS: Final = 60.0
# None of the service's secrets; one thread, because a process with several can't have a namespace of its own.
_ENVIRONMENT: Final = {"PYTHONUTF8": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_READ_BYTES: Final = 256 * 1024


class IsolatedParser:
    """Parses documents in children of a template process, at most `parallel` at a time (default: one a processor).

    A child serves up to `documents_per_child` documents one after the other, as long as none of them fails it; 1 keeps
    every document apart for 8 ms of processor time each. Use it as an async context manager. A template that died is
    replaced with the next document.
    """

    def __init__(
        self,
        limits: ParseLimits | None = None,
        *,
        ocr: OcrSettings | None = None,
        parallel: int | None = None,
        documents_per_child: int = 50,
    ) -> None:
        self._limits = limits or ParseLimits()
        self._ocr = ocr or OcrSettings()
        self._wall_seconds = max(self._limits.wall_seconds, self._ocr.wall_seconds if self._ocr.enabled else 0.0)
        self._documents_per_child = documents_per_child
        self._slots = asyncio.Semaphore(parallel or os.cpu_count() or 1)
        self._template = _Template()
        self._idle: list[_Child] = []

    async def __aenter__(self) -> Self:
        await self._template.control()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the template and with it all children."""
        while self._idle:
            self._idle.pop().close()
        await self._template.aclose()

    async def parse(
        self,
        data: bytes,
        *,
        filename: str,
        media_type: str | None = None,
        settings: KnowledgeBaseSettings | None = None,
    ) -> ParsedFile:
        """Decode, clean and split a document.

        Raises a DocumentError: what `documents.parse` raises, or ParseTimeout, ParseMemory, ParseCrashed. Cancelling
        kills the child.
        """
        request = ParseRequest(
            filename=filename,
            media_type=media_type,
            settings=settings or KnowledgeBaseSettings(),
            limits=self._limits,
            ocr=self._ocr,
        )
        async with self._slots:
            if self._idle:
                try:
                    return await self._ask(self._idle.pop(), request, data)
                except ParseCrashed:
                    pass  # it may have died before, or of an earlier document: a fresh child decides
            return await self._ask(await self._template.fork(), request, data)

    async def _ask(self, child: "_Child", request: ParseRequest, data: bytes) -> ParsedFile:
        try:
            async with asyncio.timeout(self._wall_seconds + _GRACE_SECONDS):
                parsed = _read_answer(await child.ask(request, data))
        except TimeoutError as error:
            child.close()
            raise ParseTimeout(f"parsing took longer than {self._wall_seconds:g} s") from error
        except BaseException:
            child.close()
            raise
        if child.served < self._documents_per_child:
            self._idle.append(child)
        else:
            child.close()
        return parsed


class _Child:
    """One end of the conversation with a child; closing it kills the child."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self.served = 0

    def close(self) -> None:
        self._connection.close()

    async def ask(self, request: ParseRequest, data: bytes) -> bytes:
        """Return the child's answer. Raises ParseTimeout or ParseCrashed when it died instead."""
        loop = asyncio.get_running_loop()
        head = request.model_dump_json().encode()
        received = bytearray()
        missing = ANSWER_LENGTH.size
        with suppress(ConnectionError):  # it died; what was received says of what
            await loop.sock_sendall(self._connection, REQUEST_LENGTHS.pack(len(head), len(data)) + head)
            await loop.sock_sendall(self._connection, data)
        while missing > 0:
            chunk = await self._read()
            if not chunk:
                raise _death(bytes(received), request.limits)
            received += chunk
            missing = _missing(received, request.limits)
        self.served += 1
        return bytes(received[ANSWER_LENGTH.size :])

    async def _read(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self._connection, _READ_BYTES)
        except ConnectionError:
            return b""


class _Template:
    """The template process, started when it is first needed and again when it has died."""

    def __init__(self) -> None:
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None

    async def fork(self) -> _Child:
        """Have a child forked."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(await self.control(), [b"\0"], [theirs.fileno()])
            except OSError:
                await self.aclose()
                socket.send_fds(await self.control(), [b"\0"], [theirs.fileno()])
        return _Child(ours)

    async def control(self) -> socket.socket:
        """Return the control socket of the running template."""
        async with self._starting:
            if self._control is None:
                self._control, theirs = socket.socketpair()
                with theirs:
                    self._process = await asyncio.create_subprocess_exec(
                        sys.executable,
                        "-m",
                        "services.ingestion.parsing.child",
                        str(theirs.fileno()),
                        stdin=asyncio.subprocess.DEVNULL,
                        cwd=_ROOT,
                        env=_ENVIRONMENT,
                        pass_fds=[theirs.fileno()],
                    )
                await self._report(self._control)
            return self._control

    async def _report(self, control: socket.socket) -> None:
        """Wait until the template is ready, and log how far it is confined. Raises ConnectionError when it ended instead."""
        control.setblocking(False)
        line = b""
        async with asyncio.timeout(_START_SECONDS):
            while not line.endswith(b"\n"):
                received = await asyncio.get_running_loop().sock_recv(control, 4096)
                if not received:
                    raise ConnectionError("the parser's process ended at its start")
                line += received
        control.setblocking(True)
        confined: dict[str, bool] = orjson.loads(line)
        say = log.info if all(confined.values()) else log.warning
        say("parser.confined", **confined)

    async def aclose(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            process, self._process = self._process, None
            try:
                async with asyncio.timeout(_GRACE_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def _missing(received: bytearray, limits: ParseLimits) -> int:
    """Return how many bytes of the answer are still to come."""
    if len(received) < ANSWER_LENGTH.size:
        return ANSWER_LENGTH.size - len(received)
    (length,) = ANSWER_LENGTH.unpack_from(received)
    if length > limits.max_output_bytes:
        raise ParseCrashed("the parser's answer is larger than it may be")
    return int(length) + ANSWER_LENGTH.size - len(received)


def _death(received: bytes, limits: ParseLimits) -> DocumentError:
    """Return what the child died of, by the wait status that comes last."""
    if len(received) < WAIT_STATUS.size:
        return ParseCrashed("the parser process died", retryable=True)  # the template did, not the document's child
    (status,) = WAIT_STATUS.unpack(received[-WAIT_STATUS.size :])
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGALRM, -signal.SIGXCPU):
        return ParseTimeout(
            f"parsing took longer than {limits.cpu_seconds} s of the processor or {limits.wall_seconds:g} s"
        )
    return ParseCrashed(f"the parser process died ({signal.Signals(-code).name if code < 0 else f'exit {code}'})")


def _piece(ordinal: int, fields: Sequence[Any], parent: Piece | None = None) -> Piece:
    title, path, content, start, end, header_chars, pages = fields
    first_and_last = (int(pages[0]), int(pages[1])) if pages else None
    return Piece(ordinal, title, tuple(path), content, start, end, header_chars, parent, first_and_last)


def _read_answer(payload: bytes) -> ParsedFile:
    """Return what was parsed, or raise the failure, that the child reports. It isn't trusted to be well-formed."""
    try:
        answer = orjson.loads(payload)
        if "failure" not in answer:
            parents = [_piece(ordinal, fields) for ordinal, fields in enumerate(answer["parents"])]
            pieces = [
                _piece(ordinal, fields, None if parent is None else parents[parent])
                for ordinal, (*fields, parent) in enumerate(answer["pieces"])
            ]
            notes = (ErrorInfo.model_validate(warning) for warning in answer["warnings"])
            return ParsedFile(pieces, tuple(Note(note.code, note.message) for note in notes), str(answer["media_type"]))
        failure = ErrorInfo.model_validate(answer["failure"])
        kind = {kind.code: kind for kind in DocumentError.__subclasses__()}[failure.code]
    except (ValueError, TypeError, LookupError) as error:
        raise ParseCrashed("the parser's answer is malformed") from error
    raise kind(failure.message)
