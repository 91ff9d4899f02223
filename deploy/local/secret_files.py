"""Small files that only their owner may read."""

import os
import secrets
from pathlib import Path


def write_secret(path: Path, text: str) -> None:
    """Replaces `path` by `text`, mode 600 from the first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.replace(path)


def load_or_create_password(path: Path) -> str:
    """The password kept in `path`; a random one of 192 bits, safe in a URL, is made at first use."""
    if not path.exists():
        write_secret(path, secrets.token_hex(24))
    return path.read_text()
