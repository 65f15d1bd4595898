"""Rules of what each rank runs: no launcher inside the launcher, none that wants ssh, no arguments of nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from launcher.plan.rules.case import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Finding
    from launcher.plan.rules.case import Case
    from launcher.recipe.schema import Entry

LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun")
"""Programs that start ranks of their own."""
_ENTER_NODES = frozenset({"deepspeed", "mpirun", "mpiexec", "horovodrun"})
"""Those that start them on other nodes over ssh."""
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_PER_NODE_OPTIONS = ("--nproc_per_node", "--nproc-per-node", "--num_gpus", "--nproc")
_OVERALL_OPTIONS = ("--num_processes", "-np", "-n")


def arguments(case: Case) -> Iterator[Finding]:
    """Arguments that nobody reads."""
    entry = case.recipe.entry
    if entry.script is None and entry.arguments:
        message = "entry.arguments are for a script, and there is none"
        yield finding("error", "arguments_without_script", message, "entry.arguments", edits=(("entry.arguments=[]",),))


def nested_launcher(case: Case) -> Iterator[Finding]:
    """Each of our ranks would start ranks of its own (huggingface/accelerate issue 3494)."""
    entry = case.recipe.entry
    if not _starts_ranks(entry) or case.processes == 1:
        return
    words = " ".join((entry.script or "", *entry.arguments[:1]))
    started = case.world * _nested_ranks(entry, case)
    yield finding(
        "error",
        "nested_launcher",
        f"{words} inside {case.processes} processes a node would start {started} processes on {case.world} GPUs",
        "entry.script",
        "cluster.processes_per_instance",
        allowed="a Python script, started once per GPU; or entry.launcher=torchrun, started once per node",
    )


def enters_nodes(case: Case) -> Iterator[Finding]:
    """A launcher that wants ssh between nodes, where there is none (deepspeedai/DeepSpeed issues 759 and 1603)."""
    entry, nodes = case.recipe.entry, case.recipe.cluster.instance_count
    name = PurePath(entry.script or "").name
    if case.recipe.cluster.backend == "azureml" and nodes > 1 and name in _ENTER_NODES:
        yield finding(
            "error",
            "enters_nodes",
            f"{name} reaches the other {nodes - 1} nodes over ssh, and a job's nodes let nobody in without a password",
            "entry.script",
            "cluster.instance_count",
            allowed="a Python script: Azure ML starts one process per GPU on every node, and sets their rank variables",
        )


def _starts_ranks(entry: Entry) -> bool:
    runs_module = entry.script == "-m" and bool(entry.arguments) and entry.arguments[0] in _LAUNCHER_MODULES
    return runs_module or is_launcher(entry.script or "")


def is_launcher(script: str) -> bool:
    """Whether ``script`` is a program that starts ranks, and no Python file."""
    return PurePath(script).name in LAUNCHERS


def _nested_ranks(entry: Entry, case: Case) -> int:
    """Ranks one nested launcher would start: as its options say, else one per GPU of the node."""
    per_node = _number(entry.arguments, _PER_NODE_OPTIONS)
    overall = _number(entry.arguments, _OVERALL_OPTIONS)
    if per_node is None and overall is not None:
        per_node = max(1, overall // case.recipe.cluster.instance_count)
    return per_node or case.processes


def _number(words: tuple[str, ...], options: tuple[str, ...]) -> int | None:
    """The number after one of ``options``, written ``--option 2`` or ``--option=2``."""
    parts = [part for word in words for part in word.split("=", 1)]
    for option, value in pairwise(parts):
        if option in options and value.isdecimal():
            return int(value)
    return None
