"""ZIP containers, as Office and EPUB files are: what one would unpack to is checked before anything is unpacked."""

import posixpath
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import IO, Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from services.ingestion.parsing.limits import Corrupt, Encrypted, TooManyEntries
from services.ingestion.text import TextTooLarge

MAX_ENTRIES: Final = 10_000
_NOT_UNPACKED: Final = "the file is damaged: a part of it can't be unpacked"
_ZLIB_NO_MEMORY: Final = "Error -4 "  # Z_MEM_ERROR: the exception has no code of its own
_MAX_DIRECTORY_BYTES: Final = 4 * 1024**2
_MAX_PART_BYTES: Final = 128 * 1024**2
_MAX_TOTAL_BYTES: Final = 512 * 1024**2
# Deflate reaches 1,000 to 1. Real markup, even of a table of zeros, stays far below this.
_MAX_RATIO: Final = 200
_FREE_OF_RATIO_BYTES: Final = 8 * 1024**2

_DIRECTORY_END: Final = struct.Struct(
    "<4s4H2LH"
)  # signature, disk numbers, entries, size and offset, length of the comment
_DIRECTORY_END_MARK: Final = b"PK\x05\x06"
_ZIP64_MARK: Final = b"PK\x06\x07"
_ZIP64_LOCATOR_BYTES: Final = 20
_MAX_COMMENT: Final = 65_535
_ENCRYPTED: Final = 0x1


class Archive:
    """The parts of a ZIP file by name; names are compared without regard to case and kind of slash.

    No part is ever written to a file, so that a name with `..` is a name like any other. Raises Corrupt, and
    TooManyEntries before the list of entries is read.
    """

    def __init__(self, data: bytes) -> None:
        _check_directory(data)
        try:
            self._zip = ZipFile(BytesIO(data))
        except (BadZipFile, ValueError, OverflowError, struct.error) as error:
            raise Corrupt("the file is damaged: its list of parts can't be read") from error
        self._parts = {_part_name(info.filename): info for info in self._zip.infolist()}
        self._unpacked = 0

    def __contains__(self, name: str) -> bool:
        return _part_name(name) in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a part for reading in pieces. Raises Corrupt, Encrypted, TextTooLarge; so does reading within the block."""
        info = self._parts.get(_part_name(name))
        if info is None:
            raise Corrupt("the file is damaged: a part of it is missing")
        self._check(info)
        try:
            part = self._zip.open(info)
        except (BadZipFile, EOFError, NotImplementedError, ValueError) as error:
            raise Corrupt(_NOT_UNPACKED) from error
        try:
            with part:
                yield part
        except (BadZipFile, zlib.error, EOFError) as error:
            if str(error).startswith(_ZLIB_NO_MEMORY):
                raise MemoryError("zlib ran out of memory") from error
            raise Corrupt(_NOT_UNPACKED) from error

    def read(self, name: str, max_bytes: int = 1024**2) -> bytes:
        """Return a part's first bytes. Raises what `open` raises."""
        with self.open(name) as part:
            return part.read(max_bytes)

    def _check(self, info: ZipInfo) -> None:
        if info.flag_bits & _ENCRYPTED:
            raise Encrypted("the file is protected by a password; save it without one and upload it again")
        if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise Corrupt("the file is packed in a way that no such document is")
        self._unpacked += info.file_size
        if info.file_size > _MAX_PART_BYTES or self._unpacked > _MAX_TOTAL_BYTES:
            raise TextTooLarge(f"a part of the file unpacks to {info.file_size:,} bytes, which is more than is taken")
        if info.file_size > max(_FREE_OF_RATIO_BYTES, _MAX_RATIO * info.compress_size):
            raise TextTooLarge(
                f"a part of {info.compress_size:,} bytes unpacks to {info.file_size:,}: no document is like that"
            )


def _part_name(name: str) -> str:
    return posixpath.normpath(name.replace("\\", "/").lower()).lstrip("/")


def _check_directory(data: bytes) -> None:
    """Judge by the record at the file's end how long the list of its entries is, before that list is read."""
    start = data.rfind(_DIRECTORY_END_MARK, -(_MAX_COMMENT + _DIRECTORY_END.size))
    if start < 0 or start + _DIRECTORY_END.size > len(data):
        raise Corrupt("the file is damaged or cut off: its end is missing")
    *_, entries, directory_bytes, _, _ = _DIRECTORY_END.unpack_from(data, start)
    # ZIP64 has its own counts. Only files of more than 4 GB or 65,534 entries need it.
    is_zip64 = data[max(start - _ZIP64_LOCATOR_BYTES, 0) : start].startswith(_ZIP64_MARK)
    if is_zip64 or entries > MAX_ENTRIES or directory_bytes > _MAX_DIRECTORY_BYTES:
        raise TooManyEntries(f"the file is made of more than {MAX_ENTRIES:,} parts")
