"""One cluster at one node count, searched for its fastest layouts."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from launcher.plan.search_layouts import cuts, shardings, simplicity

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.plan.search_ground import Ground
    from launcher.plan.search_layouts import Cut, Sharding


@dataclass(frozen=True, kw_only=True)
class Found:
    """A layout that fits, before it is planned."""

    seconds: float
    """Of one step."""
    cut: Cut
    sharding: Sharding

    def __lt__(self, other: Found) -> bool:
        """Faster first; of two as fast, the simpler."""
        return self._order < other._order

    @property
    def _order(self) -> tuple[object, ...]:
        return (self.seconds, *simplicity(self.cut, self.sharding))


class Place:
    """The layouts of one cluster and node count, and what of them was computed."""

    def __init__(self, ground: Ground, instances: int) -> None:
        self.ground, self.case = ground, ground.case(instances)
        self._cuts = tuple(cuts(self.case))
        self._shardings: dict[tuple[object, ...], tuple[Sharding, ...]] = {}
        self.layouts = sum(len(self._ways(cut)) for cut in self._cuts)
        """Layouts the rules allow."""
        self.evaluated = 0
        self.least_bytes = inf
        """Of the layouts that do not fit, the nearest."""

    def fastest(self, useful: Callable[[Found], float]) -> list[Found]:
        """Every cut worth having, fastest first, with its best sharding; the very fastest is always among them.

        ``useful`` is told of each one found, and says up to how many seconds a step others would still be of use.
        """
        found: list[Found] = []
        limit = inf
        world = self.case.world
        floors = sorted((self.ground.floor_seconds(cut, world), number) for number, cut in enumerate(self._cuts))
        for floor, number in floors:
            if found and floor > max(limit, found[0].seconds):
                break
            best = self._best_sharding(self._cuts[number])
            if best is not None:
                insort(found, best)
                limit = useful(best)
        return found

    def _best_sharding(self, cut: Cut) -> Found | None:
        """The fastest sharding of ``cut`` that fits, if any."""
        found: list[Found] = []
        ways = self._ways(cut)
        usable = self.ground.usable or inf
        held = self.ground.held_bytes(cut, ways[-1])
        self.evaluated += 1
        for sharding in ways:
            least = held + self.ground.floor_state_bytes(cut, sharding)
            if least > usable:
                self.least_bytes = min(self.least_bytes, least)
                continue
            self.evaluated += 1
            workload = self.ground.workload(cut, sharding)
            memory = self.ground.memory(workload)
            if self.ground.fits(memory):
                found.append(Found(seconds=self.ground.seconds(workload), cut=cut, sharding=sharding))
            else:
                self.least_bytes = min(self.least_bytes, memory.bytes_per_gpu)
        return min(found, default=None)

    def _ways(self, cut: Cut) -> tuple[Sharding, ...]:
        key = (cut.engine, cut.tensor, cut.pipeline > 1, cut.replicas)
        ways = self._shardings.get(key)
        if ways is None:
            ways = self._shardings[key] = tuple(shardings(cut, self.case))
        return ways
