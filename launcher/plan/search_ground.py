"""One cluster choice as the search stands on it: workloads of its layouts, and floors under their time and memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from launcher.catalog import vm_sizes
from launcher.plan.batch import make_batch
from launcher.plan.calibration import shipped
from launcher.plan.families.moe import parameters
from launcher.plan.memory import make_memory
from launcher.plan.pipeline_time import SCHEDULE_BUBBLE
from launcher.plan.rules.case import Case
from launcher.plan.search_layouts import Sharding, schedule
from launcher.plan.stacks import OURS
from launcher.plan.step_time import step
from launcher.plan.topology import make_topology, processes_per_node
from launcher.plan.workload import Layout
from launcher.plan.workloads import accelerator_of, hardware_of, usable_bytes, workload_of
from launcher.recipe.schema import Parallelism
from launcher.units import GIB

if TYPE_CHECKING:
    from launcher.catalog.accelerator import Accelerator
    from launcher.plan.plan import Memory
    from launcher.plan.search_layouts import Cut
    from launcher.plan.workload import Workload
    from launcher.recipe.schema import Recipe

_WHOLE = Sharding()
MANY = 10**9
"""Micro batches over which what happens once a step vanishes."""
_HELD_BY_ANY_SHARDING = ("activations", "logits")
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


class Ground:
    """A recipe on one VM size. Caches what its layouts have in common."""

    def __init__(self, recipe: Recipe) -> None:
        size = vm_sizes.find(recipe.cluster.instance_type)
        device = accelerator_of(recipe.cluster, size)
        self.recipe, self.size, self.processes = recipe, size, processes_per_node(recipe, size)
        self.accelerator: Accelerator | None = device
        self.constants = shipped()
        self._paces: dict[tuple[object, ...], Pace] = {}
        self._drags: dict[tuple[str, int], Drag] = {}
        if device is None:
            return
        self.usable = usable_bytes(recipe.cluster, size, device)
        self.host_bytes = None if size.ram_gib is None else size.ram_gib * GIB
        base = _alone(recipe)
        topology = make_topology(base, size)
        assert topology is not None, "one rank is a whole world"
        batch = make_batch(base.training, topology)
        assert batch is not None, "one rank takes any batch"
        hardware = hardware_of(size, device, processes=self.processes)
        self.base = replace(workload_of(base, topology, batch, size, device), hardware=hardware)
        self.parameters = parameters(self.base.shape)

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
        return make_memory(workload, usable_bytes=self.usable, processes_per_node=self.processes)

    def fits(self, memory: Memory) -> bool:
        """Whether nothing known says that device or host memory is too small."""
        return memory.verdict != "does_not_fit" and (
            self.host_bytes is None or memory.host_bytes_per_node <= self.host_bytes
        )

    def seconds(self, workload: Workload) -> float:
        """One step."""
        return step(workload, self.constants).seconds

    def floor_seconds(self, cut: Cut, world: int) -> float:
        """At most what ``seconds`` says of any sharding of ``cut``: no exchange, no optimizer, no transfers."""
        pace, drag = self._pace(cut), self._drag(cut.engine, world)
        everything = self.base.shape.layers * pace.layer + pace.head
        slowest = self.base.shape.layers / cut.pipeline * pace.layer + pace.head
        share = SCHEDULE_BUBBLE["zero_bubble" if schedule(self.recipe, cut) else "1f1b"]
        flow = cut.micro_batches * slowest + (everything - slowest) / cut.virtual * share
        return (flow * drag.factor + drag.fixed) * drag.older

    def held_bytes(self, cut: Cut, sharding: Sharding) -> int:
        """Bytes that every sharding of ``cut`` holds: activations and logits."""
        lines = self.memory(self.workload(cut, sharding)).lines
        return sum(line.bytes for line in lines if line.name.startswith(_HELD_BY_ANY_SHARDING))

    def floor_state_bytes(self, cut: Cut, sharding: Sharding) -> float:
        """At most the state of the fullest rank: 16 bytes a parameter, over the ranks that share it (ZeRO, 3.1)."""
        group = sharding.group or cut.replicas
        stage = sharding.zero_stage
        parameter = 0.0 if sharding.offloads_parameters else 2 / (group if stage == 3 else 1)
        gradient = 2 / (group if stage >= 2 else 1)
        optimizer = 0.0 if sharding.offloads_optimizer else 12 / (group if stage >= 1 else 1)
        cut_up = self.parameters / (cut.tensor * cut.pipeline * cut.expert)
        return (parameter + gradient + optimizer) * cut_up if cut.engine != "ddp" else 16 * cut_up

    def _pace(self, cut: Cut) -> Pace:
        key = (cut.engine, cut.tensor, cut.context, cut.expert, cut.micro_batch, cut.recompute)
        found = self._paces.get(key)
        if found is None:
            alone = cut._replace(pipeline=1, virtual=1, data=cut.expert, micro_batches=MANY)
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


def _alone(recipe: Recipe) -> Recipe:
    """The recipe on one rank, with no layout of its own."""
    return replace(
        recipe,
        parallelism=Parallelism(engine="fsdp"),
        training=replace(recipe.training, micro_batch_size=1, gradient_accumulation_steps=None),
        cluster=replace(recipe.cluster, instance_count=1, processes_per_instance=1),
    )
