"""One cluster at one node count, searched for its fastest layouts."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from launcher.plan.search_layouts import RECOMPUTES, families, shardings, simplicity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from launcher.plan.search_ground import Ground
    from launcher.plan.search_layouts import Cut, Family, Sharding
    from launcher.recipe.schema import ActivationCheckpointing


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
        self._families = tuple(families(self.case))
        self._shardings: dict[tuple[object, ...], tuple[Sharding, ...]] = {}
        self.layouts = sum(each.size * len(self._ways(each.fastest)) for each in self._families)
        """Layouts the rules allow."""
        self.evaluated = 0
        self.least_bytes = inf
        """Of the layouts that do not fit, the nearest."""

    def fastest(self, useful: Callable[[Found], float]) -> list[Found]:
        """Every cut worth having, fastest first, with its best sharding; the very fastest is always among them.

        ``useful`` is told of each one found, and says up to how many seconds a step others would still be of use.
        """
        found: dict[tuple[Cut, float], Found] = {}
        limit = inf
        for floor, cut in self._by_floor():
            if floor > limit:
                break
            best = self._best_sharding(cut)
            key = (cut._replace(recompute="none"), best.seconds) if best else None
            if best is None or key is None or key in found:
                continue
            found[key] = best
            limit = max(useful(best), min(each.seconds for each in found.values()))
        return sorted(found.values())

    def _by_floor(self) -> Iterator[tuple[float, Cut]]:
        """Cuts by the floor under their step time, lowest first; a family opens into its members in turn."""
        world, floors = self.case.world, self.ground.floors
        heap: list[tuple[float, int, Family, int, ActivationCheckpointing | None]]
        heap = [
            (floors(family.fastest, world, family.virtuals[-1:], RECOMPUTES[:1])[0][0], number, family, 0, None)
            for number, family in enumerate(self._families)
        ]
        heapify(heap)
        count = len(heap)
        while heap:
            least, _, family, stages, redone = heappop(heap)
            if redone is not None:
                yield least, family.fastest._replace(virtual=stages, recompute=redone)
                continue
            if not self._may_fit(family):
                continue
            for floor, virtual, recompute in floors(family.fastest, world, family.virtuals, RECOMPUTES):
                heappush(heap, (floor, count, family, virtual, recompute))
                count += 1

    def _may_fit(self, family: Family) -> bool:
        """Whether any member may: none keeps less than those without virtual stages."""
        cut, ways = family.fastest._replace(virtual=1), self._ways(family.fastest)
        least = min(self.ground.least_bytes(cut._replace(recompute=each), ways) for each in RECOMPUTES)
        return self._is_small_enough(least)

    def _is_small_enough(self, least: float) -> bool:
        """Whether a layout of at least so many bytes may fit; the smallest that does not is remembered."""
        if self.ground.room is None or least <= self.ground.room:
            return True
        self.least_bytes = min(self.least_bytes, least)
        return False

    def _best_sharding(self, cut: Cut) -> Found | None:
        """The fastest sharding of ``cut`` that fits, if any."""
        ways = self._ways(cut)
        if not self._is_small_enough(self.ground.least_bytes(cut, ways)):
            return None
        best: Found | None = None
        for floor, sharding in zip(self.ground.floor_bytes(cut, ways), ways, strict=True):
            if self._is_small_enough(floor):
                best = self._better(best, cut, sharding)
        return best

    def _better(self, best: Found | None, cut: Cut, sharding: Sharding) -> Found | None:
        """The layout if it is better than ``best`` and fits, else ``best``."""
        self.evaluated += 1
        workload = self.ground.workload(cut, sharding)
        found = Found(seconds=self.ground.seconds(workload), cut=cut, sharding=sharding)
        if best is not None and best < found:
            return best
        memory = self.ground.memory(workload)
        if self.ground.fits(memory):
            return found
        self.least_bytes = min(self.least_bytes, memory.bytes_per_gpu)
        return best

    def _ways(self, cut: Cut) -> tuple[Sharding, ...]:
        key = (cut.engine, cut.tensor, cut.pipeline > 1, cut.replicas)
        ways = self._shardings.get(key)
        if ways is None:
            ways = self._shardings[key] = tuple(shardings(cut, self.case))
        return ways
