"""Software that trains, and its release: our engines, and the stacks other people published measurements of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One training stack at one release."""

    name: str
    """``ddp, fsdp, deepspeed`` (ours), or a published one: ``megatron, torchtitan, composer, ...``."""
    family: Literal["ddp", "fsdp", "deepspeed", "megatron"]
    """Whose memory behaviour and schedule it has."""
    release: float
    """Year of the release, as a decimal: 2024.5 is mid 2024."""


OUR_RELEASE = 2026.0
"""torch 2.10 and DeepSpeed 0.19 (2026-01), the oldest our environments pin."""

DDP = Stack(name="ddp", family="ddp", release=OUR_RELEASE)
FSDP = Stack(name="fsdp", family="fsdp", release=OUR_RELEASE)
DEEPSPEED = Stack(name="deepspeed", family="deepspeed", release=OUR_RELEASE)

OURS = {stack.name: stack for stack in (DDP, FSDP, DEEPSPEED)}
"""By the recipe's ``parallelism.engine``."""


_PUBLISHED: dict[str, tuple[str, Literal["fsdp", "deepspeed", "megatron"], bool]] = {
    "megatron": ("megatron", "megatron", True),
    "megatron-2023": ("megatron-2023", "megatron", True),
    "megatron-deepspeed": ("megatron-deepspeed", "megatron", False),
    "megascale": ("megascale", "megatron", True),
    "meta": ("meta", "megatron", True),
    "fsdp-autocast": ("autocast", "fsdp", False),
    "composer-fsdp": ("composer", "fsdp", False),
    "torch-fsdp-compile": ("torchtitan", "fsdp", True),
    "torchtitan-compile": ("torchtitan", "fsdp", True),
    "torchtitan-eager": ("torchtitan", "fsdp", False),
    "deepspeed": ("deepspeed", "deepspeed", False),
}


def published_stack(name: str, release: float) -> tuple[Stack, bool]:
    """The stack a published table names (``stack`` and ``sw`` columns), and whether it fuses operations.

    Raises:
        ValueError: a stack nothing is known of.
    """
    if name not in _PUBLISHED:
        raise ValueError(f"unknown stack {name!r}; known: {', '.join(sorted(_PUBLISHED))}")
    known, family, is_compiled = _PUBLISHED[name]
    return Stack(name=known, family=family, release=release), is_compiled
