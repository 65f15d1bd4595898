"""A plan on one screen: model, layout, batch, memory beside time, then hours, dollars and findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.cli import terminal
from launcher.cli.failure import fault_lines
from launcher.cli.places import key_places
from launcher.errors import Fault
from launcher.units import GIB, KIB, MIB, TIB, format_bytes, format_count, format_dollars, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.compose.composer import Composed
    from launcher.plan.plan import Cost, Edit, Energy, Estimate, Finding, Memory, Plan, Storage, Topology, Traffic
    from launcher.recipe.schema import Model, Recipe


def plan_lines(plan: Plan, recipe: Recipe, composed: Composed | None) -> list[str]:
    """The whole plan, without the findings that forbid running: those are told as errors."""
    return [
        *_heading(plan, recipe.model),
        "",
        *terminal.side_by_side(_memory(plan.memory), _time(plan.time)),
        "",
        *_outcome(plan),
        *_findings(plan, composed),
    ]


def finding_fault(finding: Finding) -> Fault:
    """A finding as a fault: its edits are what to try."""
    return Fault(
        what=finding.message,
        keys=finding.keys,
        allowed=finding.allowed,
        suggestion="\n".join(edit_lines(finding.edits)) or None,
        code=finding.code,
    )


def edit_lines(edits: Iterable[Edit]) -> list[str]:
    """Overrides ready to paste, and what each leads to."""
    return terminal.table((" ".join(edit.overrides), _effect(edit)) for edit in edits)


def _effect(edit: Edit) -> str:
    if not edit.effect:
        return ""
    return f"{edit.effect}, {'changes what is learnt' if edit.changes_convergence else 'mapping only'}"


def _heading(plan: Plan, model: Model) -> list[str]:
    title = f"{terminal.bold(plan.recipe_name)} on {plan.hardware}"
    digests = f"recipe {plan.recipe_digest[:8]}  plan {plan.plan_digest[:8]}"
    size = terminal.width()
    return [
        terminal.ends(title, terminal.dim(digests), size),
        "",
        *terminal.labelled("model", [_model(plan, model)], size=11),
        *terminal.labelled("layout", _layout(plan.topology), size=11),
        *terminal.labelled(
            "batch", [f"{plan.batch.equation} = {format_count(plan.batch.tokens_per_step)} tokens a step"], size=11
        ),
    ]


def _model(plan: Plan, model: Model) -> str:
    parameters = f"{format_count(plan.parameters)} parameters"
    if plan.active_parameters < plan.parameters:
        parameters += f" ({format_count(plan.active_parameters)} active)"
    heads = f"{model.num_attention_heads} heads"
    if model.num_key_value_heads not in {None, model.num_attention_heads}:
        heads += f" ({model.num_key_value_heads} kv)"
    shape = f"{model.num_hidden_layers} layers, hidden {model.hidden_size}, {heads}, vocab {model.vocab_size}"
    experts = f", {model.num_local_experts} experts" if model.num_local_experts else ""
    return f"{parameters}     {shape}{experts}"


def _layout(topology: Topology) -> list[str]:
    """The equation, and which axes stay inside a node (rank order: tensor, context, data, pipeline)."""
    inside: list[str] = []
    across: list[str] = []
    span = 1
    for axis in ("tensor", "context", "data", "pipeline"):
        size = getattr(topology, f"{axis}_parallel_size")
        if size > 1:
            (inside if span * size <= topology.processes_per_node else across).append(axis)
        span *= size
    if topology.nodes == 1:
        return [topology.equation]
    places = ((inside, "inside a node"), (across, "across nodes"))
    return [topology.equation, ", ".join(f"{' and '.join(axes)} {where}" for axes, where in places if axes)]


def _memory(memory: Memory) -> list[str]:
    unit, name = _binary_unit(memory.bytes_per_gpu)
    usable = f"of {format_bytes(memory.usable_bytes)}" if memory.usable_bytes is not None else ""
    rows = [(line.name, f"{line.bytes / unit:,.1f} {name}", "") for line in memory.lines]
    total = ("total", f"{memory.bytes_per_gpu / unit:,.1f} {name}", usable)
    host = [f"host memory {format_bytes(memory.host_bytes_per_node)} a node"] if memory.host_bytes_per_node else []
    return [
        terminal.bold(f"memory per GPU (worst: {memory.worst})"),
        *("  " + line for line in [*terminal.table([*rows, total], right={1}), _verdict(memory), *host]),
    ]


def _verdict(memory: Memory) -> str:
    words = {"fits": "fits", "tight": "tight", "does_not_fit": "does not fit", "unknown": "fits or not: unknown"}
    paint = {"fits": terminal.green, "tight": terminal.yellow, "does_not_fit": terminal.red, "unknown": terminal.yellow}
    verdict = paint[memory.verdict](words[memory.verdict])
    if memory.usable_bytes is None:
        return f"{verdict} (device memory not known)"
    low, mean, high = (
        f"{100 * size / memory.usable_bytes:.0f}"
        for size in (memory.low_bytes, memory.bytes_per_gpu, memory.high_bytes)
    )
    return f"{verdict}, {mean} % [{low}, {high}]"


def _time(time: Estimate) -> list[str]:
    scale, name = (1.0, "s") if time.step_seconds >= 1 else (1e-3, "ms")
    rows = [
        (line.name, f"{line.seconds / scale:,.2f} {name}", f"{100 * line.seconds / time.step_seconds:3.0f} %")
        for line in time.lines
    ]
    interval = f"[{time.low_seconds / scale:,.3g}, {time.high_seconds / scale:,.3g}]"
    total = ("total", f"{time.step_seconds / scale:,.2f} {name}", interval)
    return [
        terminal.bold("time per step"),
        *("  " + line for line in [*terminal.table([*rows, total], right={1}), _rate(time)]),
    ]


def _rate(time: Estimate) -> str:
    rate = f"{format_count(time.tokens_per_second)} tokens/s, {time.tokens_per_second_per_gpu:,.0f} a GPU"
    if time.mfu is None:
        return f"{rate}, MFU unknown (no peak for this device)"
    hardware = f", HFU {100 * time.hfu:.1f} %" if time.hfu is not None and time.hfu > 1.005 * time.mfu else ""
    return f"{rate}, MFU {100 * time.mfu:.1f} %{hardware}"


def _outcome(plan: Plan) -> list[str]:
    batch, time = plan.batch, plan.time
    run = (
        f"{format_count(batch.train_tokens)} tokens: {batch.train_steps:,} steps, "
        f"{format_seconds(3600 * time.hours)} running, {format_seconds(3600 * time.expected_hours)} with failures"
    )
    rest = "; ".join([*_energy(plan.energy), _storage(plan.storage), f"{plan.calibration} calibration"])
    assumed = [f"assumed  {text}" for text in plan.assumptions]
    size = terminal.width()
    return [
        *terminal.wrapped(run, size),
        *terminal.wrapped(_dollars(plan.cost), size),
        *terminal.wrapped(rest, size),
        *(line for text in _failures(plan) for line in terminal.wrapped(text, size)),
        *terminal.wrapped(_traffic(plan.traffic), size),
        *(terminal.dim(line) for text in assumed for line in terminal.wrapped(text, size, indent=" " * 9)),
    ]


def _failures(plan: Plan) -> list[str]:
    """How often something breaks, and how often to save; nothing on one's own machine."""
    if plan.goodput is None:
        return []
    goodput = plan.goodput
    failure, every, save = (
        format_seconds(seconds)
        for seconds in (3600 * goodput.mean_hours_to_failure, goodput.interval_seconds, goodput.save_seconds)
    )
    return [
        f"a failure every {failure}: save every {every} ({goodput.interval_steps:,} steps, {save} each); "
        f"{goodput.efficiency:.0%} of the time is work"
    ]


def _traffic(traffic: Iterable[Traffic]) -> str:
    """Bytes one GPU sends in a step, by cause and link."""
    sent = [f"{row.name} {format_bytes(row.bytes_per_step)} {row.link}" for row in traffic]
    return f"a GPU sends each step: {', '.join(sent)}" if sent else "nothing is exchanged: one rank"


def _dollars(cost: Cost) -> str:
    if cost.price_dollars_per_hour == 0:
        return "no dollars: this hardware costs nothing by the hour"
    if cost.dollars is None:
        return "dollars unknown: no price for this size"
    source = ", ".join(
        part
        for part in (
            f"{cost.price_dollars_per_hour:,.2f} $/h a VM" if cost.price_dollars_per_hour is not None else None,
            cost.price_region,
            f"price of {cost.price_date}" if cost.price_date else None,
        )
        if part
    )
    spot = "unknown" if cost.spot_dollars is None else format_dollars(cost.spot_dollars)
    return f"{format_dollars(cost.dollars)} dedicated ({source}); spot {spot}"


def _energy(energy: Energy) -> list[str]:
    """Electricity and CO2, those that are known."""
    texts = []
    if energy.kilowatt_hours is not None:
        texts.append(_scaled(energy.kilowatt_hours, ("Wh", "kWh", "MWh", "GWh")))
    if energy.carbon_kilograms is not None:
        texts.append(_scaled(energy.carbon_kilograms, ("g", "kg", "t", "kt")) + " CO2")
    return texts


def _scaled(value: float, units: tuple[str, str, str, str]) -> str:
    """``value``, in the second of ``units``, in the largest below it."""
    scales = zip((1e6, 1e3, 1), reversed(units[1:]), strict=True)
    return next(
        (f"{value / scale:.3g} {unit}" for scale, unit in scales if value >= scale), f"{1e3 * value:.3g} {units[0]}"
    )


def _storage(storage: Storage) -> str:
    kept = f"checkpoints {format_bytes(storage.bytes_per_checkpoint)} each, {format_bytes(storage.bytes_kept)} kept"
    return f"{kept} ({format_dollars(storage.dollars_per_month)} a month)" if storage.dollars_per_month else kept


def _findings(plan: Plan, composed: Composed | None) -> list[str]:
    lines: list[str] = []
    for finding in plan.findings:
        if finding.level == "warning":
            places = key_places(finding.keys, composed)
            lines += ["", *fault_lines(finding_fault(finding), code=finding.code, places=places, level="warning")]
    remarks = [finding for finding in plan.findings if finding.level in {"note", "hint"}]
    return [*lines, *([""] if remarks else []), *(line for remark in remarks for line in _remark(remark))]


def _remark(finding: Finding) -> list[str]:
    text = terminal.wrapped(finding.message, terminal.width() - 6)
    edits = terminal.labelled("try", edit_lines(finding.edits), size=5)
    return terminal.labelled(finding.level, [*text, *edits], size=6)


def _binary_unit(count: float) -> tuple[int, str]:
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if count >= unit:
            return unit, name
    return KIB, "KiB"
