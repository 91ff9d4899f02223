"""`make status`: what runs, since when, and whether it serves; and what is stuck."""

import time
from datetime import timedelta

from rich.console import Console
from rich.table import Table

from deploy.local.programs import Program, list_programs
from deploy.local.settings import StackSettings
from deploy.local.stuck import print_stuck
from deploy.local.supervision import ProgramState, Supervisor
from deploy.local.vector_indexes import print_vector_indexes

NOT_RUNNING = ProgramState(name="", state="STOPPED", pid=0, started_at=0, description="")


def print_status(settings: StackSettings) -> bool:
    """Prints a table; whether every program of the stack runs and is ready, and nothing is stuck."""
    console = Console()
    supervisor = Supervisor(settings.state_dir)
    if not supervisor.is_running():
        console.print("The stack is down: `make up` starts it.")
        return False
    states = supervisor.states()
    table = Table("name", "state", "pid", "port", "uptime", "ready")
    everything_ready = True
    plan = list_programs(settings)
    for program in plan.programs:
        state = states.get(program.name, NOT_RUNNING)
        ready = state.is_running and program.is_ready()
        everything_ready &= ready
        table.add_row(*_cells(program, state), "[green]yes[/]" if ready else "[red]no[/]")
    console.print(table)
    if not everything_ready:
        console.print("Something is down: `make up` starts it, `make logs` tells why.")
    print_vector_indexes(console, plan.owner_variables["DATABASE_URL"])
    return print_stuck(console, plan.owner_variables["DATABASE_URL"]) and everything_ready


def _cells(program: Program, state: ProgramState) -> tuple[str, str, str, str, str]:
    if not state.pid:
        return program.name, state.state.lower(), "-", str(program.port), "-"
    uptime = timedelta(seconds=int(time.time() - state.started_at))
    return program.name, state.state.lower(), str(state.pid), str(program.port), str(uptime)
