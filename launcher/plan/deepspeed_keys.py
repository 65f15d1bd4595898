"""The keys DeepSpeed 0.19.8 reads, and what type each takes.

From ``deepspeed/runtime/config.py`` and its pydantic models (``zero/config.py``, ``zero/offload_config.py``,
``precision_config.py``, ``tensor_parallel/config.py``). Those models refuse unknown keys, but only inside the job;
the top level ignores them silently. Sections that change nothing our plan knows of are open: any key passes.
"""

from __future__ import annotations

from dataclasses import dataclass

from launcher.registry import nearest


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A type a key takes."""

    name: str
    """Python's word for it: ``int``."""
    words: str
    """For a person: ``a whole number``."""
    types: tuple[type, ...]

    def accepts(self, value: object) -> bool:
        """Whether ``value`` is of this kind; ``true`` is not a number, null stands for DeepSpeed's default."""
        if value is None or not self.types:
            return True
        return isinstance(value, self.types) and (bool in self.types or not isinstance(value, bool))


ANY = Kind(name="any", words="any value", types=())
INT = Kind(name="int", words="a whole number", types=(int,))
NUMBER = Kind(name="float", words="a number", types=(int, float))
BOOL = Kind(name="bool", words="true or false", types=(bool,))
TEXT = Kind(name="str", words="text", types=(str,))
LIST = Kind(name="list", words="a list of numbers", types=(list, tuple))

OPEN_SECTIONS = (
    "activation_checkpointing", "aio", "autotuning", "checkpoint", "comet", "comms_logger", "compile",
    "compression_training", "csv_monitor", "data_efficiency", "data_types", "expert_parallel", "flops_profiler",
    "hybrid_engine", "nebula", "pipeline", "tensorboard", "timers", "torch_autocast", "wandb",
    "optimizer.params", "scheduler", "tensor_parallel.partition_config", "tensor_parallel.tp",
    "zero_optimization.leaf_module", "zero_optimization.zenflow",
)  # fmt: skip

_OFFLOAD = {"device": TEXT, "nvme_path": TEXT, "buffer_count": INT, "pin_memory": BOOL}
_SECTIONS: dict[str, dict[str, Kind]] = {
    "": {
        "train_batch_size": INT, "train_micro_batch_size_per_gpu": INT, "gradient_accumulation_steps": INT,
        "managed_gradient_accumulation": BOOL, "gradient_clipping": NUMBER, "steps_per_print": INT,
        "wall_clock_breakdown": BOOL, "memory_breakdown": BOOL, "dump_state": BOOL, "log_level": TEXT,
        "communication_data_type": TEXT, "seq_parallel_communication_data_type": TEXT, "prescale_gradients": BOOL,
        "gradient_predivide_factor": NUMBER, "gradient_allreduce_op": TEXT, "disable_allgather": BOOL,
        "disable_python_gc": BOOL, "dataloader_drop_last": BOOL, "zero_allow_untested_optimizer": BOOL,
        "zero_force_ds_cpu_optimizer": BOOL, "use_data_before_expert_parallelism": BOOL, "vocabulary_size": INT,
        "sequence_parallel_size": INT,
    },
    "optimizer.": {"type": TEXT, "legacy_fusion": BOOL},
    "optimizer.params.": {
        "lr": NUMBER, "betas": LIST, "eps": NUMBER, "weight_decay": NUMBER, "torch_adam": BOOL, "adam_w_mode": BOOL,
    },
    "bf16.": {
        "enabled": BOOL, "immediate_grad_update": BOOL, "check_grad_overflow": BOOL,
        "bf16_master_weights_and_grads": BOOL, "bf16_optimizer_states": BOOL,
    },
    "fp16.": {
        "enabled": BOOL, "auto_cast": BOOL, "loss_scale": NUMBER, "initial_scale_power": INT,
        "loss_scale_window": INT, "hysteresis": INT, "consecutive_hysteresis": BOOL, "min_loss_scale": NUMBER,
        "fp16_master_weights_and_grads": BOOL,
    },
    "tensor_parallel.": {
        "autotp_size": INT, "tp_overlap_comm": BOOL, "vocab_parallel_lm_head": BOOL, "preset_model": TEXT,
        "vocab_parallel_ce_backend": TEXT, "keep_module_on_host": BOOL,
    },
    "zero_optimization.": {
        "stage": INT, "contiguous_gradients": BOOL, "reduce_scatter": BOOL, "reduce_bucket_size": INT,
        "use_multi_rank_bucket_allreduce": BOOL, "allgather_partitions": BOOL, "allgather_bucket_size": INT,
        "overlap_comm": BOOL, "compute_grad_norm": BOOL, "load_from_fp32_weights": BOOL, "elastic_checkpoint": BOOL,
        "sub_group_size": INT, "ignore_unused_parameters": BOOL, "legacy_stage1": BOOL, "round_robin_gradients": BOOL,
        "parameter_alignment": BOOL, "zero_hpz_partition_size": INT, "zero_quantized_weights": BOOL,
        "zero_quantized_nontrainable_weights": BOOL, "zero_quantized_gradients": BOOL, "memory_efficient_linear": BOOL,
        "pipeline_loading_checkpoint": BOOL, "override_module_apply": BOOL, "log_trace_cache_warnings": BOOL,
        "enable_sanity_checks": BOOL, "stage3_prefetch_bucket_size": INT, "stage3_param_persistence_threshold": INT,
        "stage3_model_persistence_threshold": INT, "stage3_max_live_parameters": INT, "stage3_max_reuse_distance": INT,
        "stage3_gather_16bit_weights_on_model_save": BOOL, "stage3_module_granularity_threshold": INT,
        "stage3_use_all_reduce_for_fetch_params": BOOL, "stage3_allgather_sequential": BOOL,
    },
    "zero_optimization.offload_param.": _OFFLOAD | {"buffer_size": INT, "max_in_cpu": INT},
    "zero_optimization.offload_optimizer.": _OFFLOAD | {
        "pipeline_read": BOOL, "pipeline_write": BOOL, "fast_init": BOOL, "ratio": NUMBER, "super_offload": BOOL,
        "cpuadam_cores_perc": NUMBER,
    },
}  # fmt: skip
_KINDS = {section + name: kind for section, keys in _SECTIONS.items() for name, kind in keys.items()}


def kind_of(path: str) -> Kind | None:
    """The type of the key at a dotted path (``bf16.enabled``); None when DeepSpeed reads no such key."""
    if path in _KINDS:
        return _KINDS[path]
    is_open = any(path == section or path.startswith(f"{section}.") for section in OPEN_SECTIONS)
    return ANY if is_open or _is_empty_section(path) else None


def nearest_key(path: str) -> str | None:
    """Keys that look like ``path``, as text for an error; None when nothing does."""
    found = nearest(path, _KINDS)
    if found:
        return ", ".join(found)
    section = path.rpartition(".")[0] + "."
    return ", ".join(_SECTIONS[section]) if section in _SECTIONS else None


def _is_empty_section(path: str) -> bool:
    return any(section.startswith(f"{path}.") for section in _SECTIONS)
