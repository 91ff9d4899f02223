"""The one error of the embedded stack: what is wrong, and what to do about it."""


class StackError(Exception):
    """The stack cannot go on, and the reader can help it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  -> {remedy}")
        self.problem = problem
        self.remedy = remedy
