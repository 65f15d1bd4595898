"""Environment variables of a job: text, and nothing the service would leave unexpanded."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from launcher.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
"""Set for every rank by whoever starts it, as torchrun does; never by a recipe."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def as_text(variables: Mapping[str, object]) -> dict[str, str]:
    """Values as text: ``true``, ``8``, ``0.0001``; a variable that is None is left out."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in variables.items()
        if value is not None
    }


def variable_faults(variables: Mapping[str, object]) -> Iterator[Fault]:
    """Names no shell can hold, rank variables, and templates, which Azure ML expands in ``command`` alone."""
    for name, value in variables.items():
        key = f"environment.variables.{name}"
        if not _NAME.fullmatch(name):
            yield Fault(
                what=f"{name!r} cannot name an environment variable",
                keys=(key,),
                code="job.variable_name",
                allowed="letters, digits and _, not beginning with a digit",
            )
        if name in RANK_VARIABLES:
            yield Fault(
                what=f"{name} is set for each rank by the launcher",
                keys=(key,),
                code="job.variable_rank",
                suggestion=f"remove {key}; cluster.instance_count and cluster.processes_per_instance decide",
            )
        if "${{" in str(value):
            yield Fault(
                what=f"{name} holds a template, and templates work only in the command",
                keys=(key,),
                code="job.variable_template",
                suggestion=f"pass {value} in entry.arguments, or read AZURE_ML_OUTPUT_NAME in the script",
            )
