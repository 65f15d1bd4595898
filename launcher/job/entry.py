"""What each rank runs: the built-in trainer, or a team's own script."""

from __future__ import annotations

from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from launcher.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Topology
    from launcher.recipe.schema import Entry

TRAINER = ("python", "-m", "launcher.training", "{job}", "--output", "{output}")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_PER_NODE_OPTIONS = ("--nproc_per_node", "--nproc-per-node", "--num_gpus", "--nproc")
_OVERALL_OPTIONS = ("--num_processes", "-np", "-n")


def command(entry: Entry) -> tuple[str, ...]:
    """The argv of every rank; ``{job}`` and ``{output}`` in it are paths the backend fills in."""
    if entry.script is None:
        return TRAINER
    interpreter = () if _is_launcher(entry.script) else ("python",)
    return (*interpreter, entry.script, *entry.arguments)


def entry_faults(entry: Entry, topology: Topology) -> Iterator[Fault]:
    """A launcher inside the launcher: each of our ranks would start ranks of its own."""
    if entry.script is None:
        if entry.arguments:
            yield Fault(
                what="entry.arguments are for a script, and there is none",
                keys=("entry.arguments",),
                code="job.arguments_without_script",
                suggestion="set entry.script, or leave entry.arguments out",
            )
        return
    if not _starts_ranks(entry) or topology.processes_per_node == 1:
        return
    started = topology.world_size * _nested_ranks(entry, topology)
    yield Fault(
        what=f"{' '.join((entry.script, *entry.arguments[:1]))} inside {topology.processes_per_node} processes a node "
        f"would start {started} processes on {topology.world_size} GPUs",
        keys=("entry.script", "cluster.processes_per_instance"),
        code="job.nested_launcher",
        allowed="a Python script, started once per GPU; or a launcher, started once per node",
        suggestion="entry.script=YOUR_SCRIPT.py, or cluster.processes_per_instance=1",
    )


def _starts_ranks(entry: Entry) -> bool:
    runs_module = entry.script == "-m" and bool(entry.arguments) and entry.arguments[0] in _LAUNCHER_MODULES
    return runs_module or _is_launcher(entry.script or "")


def _is_launcher(script: str) -> bool:
    return PurePath(script).name in _LAUNCHERS


def _nested_ranks(entry: Entry, topology: Topology) -> int:
    """Ranks one nested launcher would start: as its options say, else one per GPU of the node."""
    per_node = _number(entry.arguments, _PER_NODE_OPTIONS)
    overall = _number(entry.arguments, _OVERALL_OPTIONS)
    if per_node is None and overall is not None:
        per_node = max(1, overall // topology.nodes)
    return per_node or topology.processes_per_node


def _number(arguments: tuple[str, ...], options: tuple[str, ...]) -> int | None:
    """The number after one of ``options``, written ``--option 2`` or ``--option=2``."""
    words = [word for argument in arguments for word in argument.split("=", 1)]
    for option, value in pairwise(words):
        if option in options and value.isdecimal():
            return int(value)
    return None
