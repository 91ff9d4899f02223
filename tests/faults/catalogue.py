"""The list of cases, by number."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from tests.faults.bed import Bed
from tests.faults.tally import Tally

Scenario = Callable[[Bed, Random, int], Awaitable[Tally]]


@dataclass(frozen=True, slots=True)
class Case:
    """`trials` is the default number, `seconds` what it may take at most."""

    number: int
    title: str
    scenario: Scenario
    trials: int
    quick: bool
    seconds: float


CASES: dict[int, Case] = {}


def case(
    number: int, title: str, *, trials: int = 1, quick: bool = False, seconds: float = 180
) -> Callable[[Scenario], Scenario]:
    """Registers a scenario under the number that it has in the list of faults."""

    def register(scenario: Scenario) -> Scenario:
        if number in CASES:
            raise ValueError(f"case {number} exists twice")
        CASES[number] = Case(number, title, scenario, trials, quick, seconds)
        return scenario

    return register


def select_cases(numbers: str) -> list[Case]:
    """The cases of a list such as "3,7,18-24", or all of them for "". Raises KeyError for a number that no case has."""
    if not numbers:
        return [CASES[number] for number in sorted(CASES)]
    chosen: list[Case] = []
    for part in numbers.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if last:
            chosen += [CASES[number] for number in sorted(CASES) if int(first) <= number <= int(last)]
        else:
            chosen.append(CASES[int(first)])
    return chosen
