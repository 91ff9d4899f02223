"""Health check inside a container: exits with 0 when GET http://127.0.0.1:8000PATH answers 200.

    python -IS deploy/docker/healthcheck.py /readyz

It starts anew every few seconds in every container, so it asks with a plain socket: an HTTP client takes longer to import than to use.
"""

import socket
import sys

PORT = 8000
TIMEOUT_SECONDS = 4.0


def is_healthy(path: str) -> bool:
    """Whether the answer's status is 200. Raises OSError when nobody answers."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            return answer.readline(1024).split(b" ", 2)[1:2] == [b"200"]


def main() -> int:
    """Returns the exit code: 0 healthy, 1 not."""
    try:
        return 0 if is_healthy(sys.argv[1]) else 1
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
