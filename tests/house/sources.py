"""The repository's files as the rules see them."""

import ast
import io
import subprocess
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Source:
    """One text file. `path` is relative to the repository, with slashes."""

    path: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    def at(self, node: ast.stmt | ast.expr) -> str:
        return f"{self.path}:{node.lineno}"

    def comments(self) -> Iterator[tuple[int, str]]:
        """Comments with their line numbers; text in strings that looks like one is none."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string

    def calls(self) -> Iterator[ast.Call]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))


Rule = Callable[[Source], Iterator[str]]


@cache
def read_source(path: Path, root: Path = REPOSITORY) -> Source:
    """A file, read and parsed once for all rules."""
    return Source(path.relative_to(root).as_posix(), path.read_text())


def python_sources(*packages: str) -> list[Source]:
    """Every Python file below these top-level packages."""
    return [read_source(path) for package in packages for path in sorted((REPOSITORY / package).rglob("*.py"))]


def kept_sources() -> list[Source]:
    """Every text file that git keeps or would keep."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    paths = [REPOSITORY / name for name in listed.stdout.decode().split("\0") if name]
    return [read_source(path) for path in paths if path.is_file() and _is_text(path)]


def _is_text(path: Path) -> bool:
    try:
        path.read_text()
    except UnicodeDecodeError:
        return False
    return True
