"""What a rule is given, and how it speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.plan.overrides import changes_convergence
from launcher.plan.plan import Edit, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.catalog.accelerator import Accelerator
    from launcher.catalog.vm_size import VmSize
    from launcher.plan.plan import Level
    from launcher.recipe.schema import Recipe


@dataclass(frozen=True, kw_only=True)
class Case:
    """A recipe beside the facts its rules need."""

    recipe: Recipe
    size: VmSize
    accelerator: Accelerator | None
    processes: int
    """Ranks per node."""

    @property
    def world(self) -> int:
        """All ranks."""
        return self.recipe.cluster.instance_count * self.processes

    @property
    def is_cpu(self) -> bool:
        """Whether ranks are CPU processes."""
        return self.accelerator is not None and self.accelerator.architecture == "cpu"

    @property
    def island(self) -> int:
        """Ranks that may share each matrix product: those joined by NVLink, or at least those of one node."""
        return max(self.processes, self.size.island_gpus)

    @property
    def model_ranks(self) -> int:
        """Tensor x pipeline x context."""
        layout = self.recipe.parallelism
        return layout.tensor_parallel_size * layout.pipeline_parallel_size * layout.context_parallel_size


def finding(
    level: Level,
    code: str,
    message: str,
    *keys: str,
    allowed: str | None = None,
    edits: Iterable[tuple[str, ...]] = (),
) -> Finding:
    """A finding of the plan; ``edits`` are overrides without their effect, which the planner adds."""
    return Finding(
        level=level, code=f"plan.{code}", message=message, keys=keys, allowed=allowed, edits=tuple(map(edit, edits))
    )


def edit(overrides: tuple[str, ...], effect: str = "") -> Edit:
    """An edit that knows whether it touches what is learnt."""
    return Edit(overrides=overrides, effect=effect, changes_convergence=changes_convergence(overrides))


def divisors(number: int, *, most: int | None = None) -> tuple[int, ...]:
    """Divisors of ``number`` in rising order, up to ``most``."""
    return tuple(n for n in range(1, min(number, most or number) + 1) if number % n == 0)


def nearest_first(choices: Iterable[int], wanted: int) -> tuple[int, ...]:
    """``choices`` by distance from ``wanted``; of two as near, the larger first."""
    return tuple(sorted(choices, key=lambda choice: (abs(choice - wanted), -choice)))


def spoken(choices: Iterable[int]) -> str:
    """``1, 2, 4, 8``."""
    return ", ".join(map(str, choices))
