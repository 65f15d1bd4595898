"""One cluster choice as the search stands on it: workloads of its layouts, and floors under their time and memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from launcher.catalog import vm_sizes
from launcher.plan.batch import make_batch
from launcher.plan.calibration import constants_of
from launcher.plan.local_parameters import local_parameters
from launcher.plan.memory import make_memory
from launcher.plan.pipeline_time import SCHEDULE_BUBBLE
from launcher.plan.rules.case import Case
from launcher.plan.search_layouts import Sharding, schedule
from launcher.plan.stacks import OURS
from launcher.plan.states import states
from launcher.plan.step_time import step
from launcher.plan.topology import make_topology, processes_per_node
from launcher.plan.workload import Layout
from launcher.plan.workloads import accelerator_of, hardware_of, usable_bytes, workload_of
from launcher.recipe.schema import Parallelism
from launcher.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.catalog.accelerator import Accelerator
    from launcher.plan.local_parameters import LocalParameters
    from launcher.plan.plan import Memory
    from launcher.plan.search_layouts import Cut
    from launcher.plan.workload import Workload
    from launcher.recipe.schema import ActivationCheckpointing, Recipe

_WHOLE = Sharding()
MANY = 10**9
"""Micro batches over which what happens once a step vanishes."""
_HELD_BY_ANY_SHARDING = ("activations", "layer at work", "logits")
"""Memory lines that depend on the cut alone."""


class Pace(NamedTuple):
    """Seconds of one micro batch that depend on neither stages nor data ranks."""

    layer: float
    head: float


class Drag(NamedTuple):
    """What an engine adds to every step of so many ranks."""

    factor: float
    """On the flow of micro batches: waiting for the slowest rank."""
    fixed: float
    older: float


HeldBytes = dict[object, "dict[Cut, int]"]
"""Activations and logits of cuts, by model and training: no cluster changes them."""


class Ground:
    """A recipe on one VM size. Caches what its layouts have in common; ``held`` is shared with other sizes.

    ``headroom`` is the share of usable device memory that is to stay free.
    """

    def __init__(self, recipe: Recipe, *, headroom: float = 0.0, held: HeldBytes | None = None) -> None:
        size = vm_sizes.find(recipe.cluster.instance_type)
        device = accelerator_of(recipe.cluster, size)
        self.recipe, self.size, self.processes = recipe, size, processes_per_node(recipe, size)
        self.accelerator: Accelerator | None = device
        self.constants = constants_of(recipe.calibration)
        self._paces: dict[tuple[object, ...], Pace] = {}
        self._drags: dict[tuple[str, int], Drag] = {}
        self._state_bytes: dict[tuple[object, ...], list[float]] = {}
        if device is None:
            return
        self._usable = usable_bytes(recipe.cluster, size, device)
        self.room = None if self._usable is None else (1 - headroom) * self._usable
        self.host_bytes = None if size.ram_gib is None else size.ram_gib * GIB
        base = _alone(recipe)
        topology = make_topology(base, size)
        assert topology is not None, "one rank is a whole world"
        batch = make_batch(base.training, topology)
        assert batch is not None, "one rank takes any batch"
        hardware = hardware_of(size, device, processes=self.processes)
        self.base = replace(workload_of(base, topology, batch, size, device), hardware=hardware)
        self._held_bytes = {} if held is None else held.setdefault((recipe.model, recipe.training), {})

    def case(self, instances: int) -> Case:
        """The recipe on so many VMs."""
        cluster = replace(self.recipe.cluster, instance_count=instances)
        recipe = replace(self.recipe, cluster=cluster)
        return Case(recipe=recipe, size=self.size, accelerator=self.accelerator, processes=self.processes)

    def workload(self, cut: Cut, sharding: Sharding) -> Workload:
        """The layout as the predictors see it: what ``workload_of`` makes of its overrides."""
        asked = schedule(self.recipe, cut)
        layout = Layout(
            tensor=cut.tensor,
            pipeline=cut.pipeline,
            virtual=cut.virtual,
            context=cut.context,
            expert=cut.expert,
            data=cut.data,
            has_sequence_parallel=cut.tensor > 1,
            zero_stage=sharding.zero_stage,
            shard_group=min(sharding.group or cut.replicas, cut.replicas),
            offload_optimizer=sharding.offloads_optimizer,
            offload_parameters=sharding.offloads_parameters,
            schedule="zero_bubble" if asked else "interleaved" if cut.virtual > 1 else "1f1b",
        )
        return replace(
            self.base,
            layout=layout,
            stack=OURS[cut.engine],
            micro_batch=cut.micro_batch,
            micro_batches=cut.micro_batches,
            recompute=cut.recompute,
        )

    def memory(self, workload: Workload) -> Memory:
        """The memory of the fullest rank."""
        return make_memory(workload, usable_bytes=self._usable, processes_per_node=self.processes)

    def fits(self, memory: Memory) -> bool:
        """Whether nothing known says that device memory, at rest or at the start, or host memory is too small."""
        if self.room is not None and max(memory.bytes_per_gpu, memory.start_bytes) > self.room:
            return False
        return self.host_bytes is None or memory.host_bytes_per_node <= self.host_bytes

    def seconds(self, workload: Workload) -> float:
        """One step."""
        return step(workload, self.constants).seconds

    def floors(
        self,
        cut: Cut,
        world: int,
        virtuals: Sequence[int],
        recomputes: Sequence[ActivationCheckpointing],
    ) -> list[tuple[float, int, ActivationCheckpointing]]:
        """At most what ``seconds`` says of any sharding of ``cut`` with each of ``virtuals`` and ``recomputes``.

        The flow of micro batches is that of ``pipeline_time.flow``; without exchange, optimizer and transfers.
        """
        layers = self.base.shape.layers
        drag = self._drag(cut.engine, world)
        share = SCHEDULE_BUBBLE["zero_bubble" if schedule(self.recipe, cut) else "1f1b"]
        found = []
        for recompute in recomputes:
            pace = self._pace(cut, recompute)
            slowest = layers / cut.pipeline * pace.layer + pace.head
            fill = (layers * pace.layer + pace.head - slowest) * share
            for virtual in virtuals:
                flow = cut.micro_batches * slowest + fill / virtual
                found.append(((flow * drag.factor + drag.fixed) * drag.older, virtual, recompute))
        return found

    def floor_bytes(self, cut: Cut, ways: tuple[Sharding, ...]) -> tuple[float, ...]:
        """At most what ``memory`` says of each of ``ways`` to shard ``cut``: nothing but states and activations."""
        held, states = self._held(cut), self._states(cut, ways)
        return tuple([held + state for state in states])

    def least_bytes(self, cut: Cut, ways: tuple[Sharding, ...]) -> float:
        """The least of ``floor_bytes``."""
        return self._held(cut) + min(self._states(cut, ways))

    def _held(self, cut: Cut) -> int:
        """Activations and logits: the same for every sharding, and for any number of micro batches beyond 2 a stage."""
        alike = cut._replace(data=cut.expert, micro_batches=min(cut.micro_batches, 2 * cut.pipeline))
        found = self._held_bytes.get(alike)
        if found is None:
            lines = self.memory(self.workload(alike, _WHOLE)).lines
            found = sum(line.bytes for line in lines if line.name.startswith(_HELD_BY_ANY_SHARDING))
            self._held_bytes[alike] = found
        return found

    def _states(self, cut: Cut, ways: tuple[Sharding, ...]) -> list[float]:
        """State of the first stage or of the last, whichever has less: micro batches and recompute do not matter."""
        key = (cut.engine, cut.tensor, cut.pipeline, cut.expert, cut.replicas, cut.micro_batches > 1)
        found = self._state_bytes.get(key)
        if found is None:
            workloads = [self.workload(cut, sharding) for sharding in ways]
            ends = _ends(workloads[0])
            found = [min(sum(states(workload, end)) for end in ends) for workload in workloads]
            self._state_bytes[key] = found
        return found

    def _pace(self, cut: Cut, recompute: ActivationCheckpointing) -> Pace:
        key = (cut.engine, cut.tensor, cut.context, cut.expert, cut.micro_batch, recompute)
        found = self._paces.get(key)
        if found is None:
            alone = cut._replace(pipeline=1, virtual=1, data=cut.expert, micro_batches=MANY, recompute=recompute)
            taken = step(self.workload(alone, _WHOLE), self.constants)
            found = self._paces[key] = Pace(taken.layer.total, taken.head)
        return found

    def _drag(self, engine: str, world: int) -> Drag:
        found = self._drags.get((engine, world))
        if found is None:
            found = self._drags[engine, world] = self._measured_drag(engine, world)
        return found

    def _measured_drag(self, engine: str, world: int) -> Drag:
        layout = replace(self.base.layout, data=world, shard_group=world)
        taken = step(replace(self.base, layout=layout, stack=OURS[engine], micro_batches=1), self.constants)
        flow = self.base.shape.layers * taken.layer.total + taken.head
        older = taken.seconds / (taken.seconds - taken.older)
        return Drag(1 + taken.stragglers / flow, taken.fixed, older)


def _ends(workload: Workload) -> tuple[LocalParameters, ...]:
    """Parameters of the first stage and of the last."""
    pipeline = workload.layout.pipeline
    layers = workload.shape.layers // pipeline
    if pipeline == 1:
        return (local_parameters(workload, layers=layers, has_first=True, has_last=True),)
    return (
        local_parameters(workload, layers=layers, has_first=True, has_last=False),
        local_parameters(workload, layers=layers, has_first=False, has_last=True),
    )


def _alone(recipe: Recipe) -> Recipe:
    """The recipe on one rank, with no layout of its own."""
    return replace(
        recipe,
        parallelism=Parallelism(engine="fsdp"),
        training=replace(recipe.training, micro_batch_size=1, gradient_accumulation_steps=None),
        cluster=replace(recipe.cluster, instance_count=1, processes_per_instance=1),
    )
