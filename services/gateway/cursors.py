"""Opaque cursors of keyset lists: the key of the last item that was seen, an id or a number."""

import base64
import binascii
from uuid import UUID

from services.gateway.refusals import Refusal, wrong_field

# Before the first and after the last id there is.
LOWEST_ID = UUID(int=0)
HIGHEST_ID = UUID(int=2**128 - 1)
HIGHEST_NUMBER = 2**63 - 1


def encode_id(key: UUID) -> str:
    return base64.urlsafe_b64encode(key.bytes).rstrip(b"=").decode()


def encode_number(key: int) -> str:
    return base64.urlsafe_b64encode(key.to_bytes(8)).rstrip(b"=").decode()


def decode_id(cursor: str) -> UUID:
    """Raises Refusal for anything that `encode_id` did not make."""
    return UUID(bytes=_decode(cursor, 16))


def decode_number(cursor: str) -> int:
    """Raises Refusal for anything that `encode_number` did not make."""
    number = int.from_bytes(_decode(cursor, 8))
    if number > HIGHEST_NUMBER:
        raise _malformed()
    return number


def _decode(cursor: str, length: int) -> bytes:
    try:
        key = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _malformed() from None
    if len(key) != length:
        raise _malformed()
    return key


def _malformed() -> Refusal:
    return wrong_field("cursor", "invalid_cursor", "The cursor is not one that this list has given out.")
