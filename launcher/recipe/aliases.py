"""Everyone else's words for our keys, accepted once with a note that names the canonical key.

Sources of the words: Megatron-LM and NeMo arguments, DeepSpeed JSON, Hugging Face ``TrainingArguments``,
accelerate and ``config.json``, torchtitan, OLMo-core, llm-foundry, Azure ML job YAML.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.errors import Fault
from launcher.recipe.fields import annotation_at, as_text, every_key, is_section, nearest_keys
from launcher.registry import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Alias:
    """A foreign word for one of our keys."""

    key: str
    """The canonical dotted key."""
    values: Mapping[str, Any] | None = None
    """Foreign value -> ours, where they differ; other values have no equivalent."""


@dataclass(frozen=True, kw_only=True)
class Renamed:
    """A foreign word that was read as one of our keys."""

    written: str
    key: str
    path: tuple[str, ...]
    """Where it stands in its file, below the file's own package."""


_WORDS: dict[str, str] = {
    "name": "run_name",
    "model.hidden_size": "d_model n_embd",
    "model.num_hidden_layers": "num_layers n_layer n_layers",
    "model.num_attention_heads": "n_head n_heads num_heads",
    "model.num_key_value_heads": "num_query_groups n_kv_heads num_kv_heads",
    "model.head_dim": "kv_channels",
    "model.intermediate_size": "ffn_hidden_size n_inner ffn_dim",
    "model.vocab_size": "padded_vocab_size",
    "model.max_position_embeddings": "n_positions n_ctx",
    "model.hidden_act": "activation_function",
    "model.rope_theta": "rotary_base",
    "model.norm_eps": "rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon",
    "model.initializer_range": "init_method_std",
    "model.num_local_experts": "num_experts num_moe_experts",
    "model.num_experts_per_tok": "moe_router_topk moe_top_k",
    "model.moe_intermediate_size": "moe_ffn_hidden_size",
    "training.seq_length": "seq_len sequence_length sequence_len max_seq_len max_seq_length max_sequence_length "
    "max_target_length max_context_length encoder_seq_length",
    "training.micro_batch_size": "train_micro_batch_size_per_gpu per_device_train_batch_size per_device_batch_size "
    "device_train_microbatch_size mbs",
    "training.global_batch_size": "train_batch_size global_train_batch_size gbs",
    "training.gradient_accumulation_steps": "accumulate_grad_batches grad_acc",
    "training.train_steps": "max_steps train_iters training_steps total_steps",
    "training.train_tokens": "max_tokens total_tokens",
    "training.precision": "mixed_precision mixed_precision_param",
    "training.activation_checkpointing": "recompute_granularity activations_checkpoint_granularity",
    "training.gradient_clipping": "clip_grad max_grad_norm gradient_clip_val grad_clip",
    "training.seed": "random_seed",
    "training.evaluation_interval_steps": "eval_interval eval_steps val_check_interval",
    "training.optimizer.learning_rate": "lr max_lr peak_lr",
    "training.optimizer.beta1": "adam_beta1",
    "training.optimizer.beta2": "adam_beta2",
    "training.optimizer.epsilon": "adam_eps adam_epsilon",
    "training.schedule.name": "lr_decay_style lr_scheduler_type",
    "training.schedule.warmup_steps": "num_warmup_steps lr_warmup_steps lr_warmup_iters warmup_iters",
    "training.lora.rank": "lora_r lora_rank",
    "training.lora.alpha": "lora_alpha",
    "training.lora.dropout": "lora_dropout",
    "training.lora.target_modules": "lora_target_modules",
    "training.schedule.decay_steps": "lr_decay_iters lr_decay_steps",
    "parallelism.tensor_parallel_size": "tensor_model_parallel_size tensor_parallel_degree tp_size tp",
    "parallelism.pipeline_parallel_size": "pipeline_model_parallel_size pipeline_parallel_degree pp_size pp",
    "parallelism.virtual_pipeline_parallel_size": "virtual_pipeline_model_parallel_size vpp",
    "parallelism.context_parallel_size": "context_parallel_degree cp_size cp sequence_parallel_size",
    "parallelism.expert_parallel_size": "expert_model_parallel_size expert_parallel_degree ep_size ep",
    "parallelism.data_parallel_size": "data_parallel_degree dp_size dp",
    "parallelism.shard_group_size": "dp_shard_size data_parallel_shard_degree",
    "parallelism.zero_stage": "zero zero_optimization.stage",
    "parallelism.offload_parameters": "offload_params offload_param",
    "cluster.instance_count": "num_nodes nodes nnodes num_machines",
    "cluster.instance_type": "sku vm_size",
    "cluster.processes_per_instance": "devices gpus_per_node num_gpus_per_node nproc_per_node "
    "process_count_per_instance num_processes_per_node",
    "cluster.compute": "compute_target",
    "cluster.workspace": "workspace_name",
    "cluster.subscription_id": "subscription",
    "cluster.region": "location",
    "environment.variables": "environment_variables env_vars",
    "checkpoint.interval_steps": "save_interval save_steps",
    "checkpoint.keep": "save_total_limit",
    "tracking.experiment": "experiment_name",
    "tracking.uri": "tracking_uri mlflow_tracking_uri",
    "tracking.log_interval_steps": "log_interval logging_steps log_every_n_steps",
}
_TRANSLATED = {
    "gradient_checkpointing": Alias(key="training.activation_checkpointing", values={"true": "full", "false": "none"}),
    "bf16": Alias(key="training.precision", values={"true": "bf16"}),
    "fp16": Alias(key="training.precision", values={"true": "fp16"}),
    "untie_embeddings_and_output_weights": Alias(
        key="model.tie_word_embeddings", values={"true": False, "false": True}
    ),
    "use_spot": Alias(key="cluster.tier", values={"true": "spot", "false": "dedicated"}),
    "spot": Alias(key="cluster.tier", values={"true": "spot", "false": "dedicated"}),
}
ALIASES: dict[str, Alias] = {
    word: Alias(key=key) for key, words in _WORDS.items() for word in words.split()
} | _TRANSLATED
"""Foreign word -> canonical key; a word is known by its last part, in whatever section its source put it."""


def find_alias(path: str) -> Alias | None:
    """The alias a dotted path ends in; None for a legal key and for an unknown word."""
    if annotation_at(path) is not None:
        return None
    return ALIASES.get(path) or ALIASES.get(".".join(path.split(".")[-2:])) or ALIASES.get(path.rsplit(".", 1)[-1])


def meant_keys(key: str, *, most: int = 3) -> tuple[str, ...]:
    """Legal keys that were probably meant by an unknown one: by a foreign word, a near miss of ours, or of theirs."""
    alias = find_alias(key)
    last = key.rsplit(".", 1)[-1]
    ours = {known.rsplit(".", 1)[-1]: known for known in reversed(every_key())}
    words = {word: foreign.key for word, foreign in ALIASES.items()} | ours
    found = [
        *([alias.key] if alias else []),
        *(known for known in every_key() if known.rsplit(".", 1)[-1] == last),
        *(words[word] for word in nearest(last, words, most=most)),
        *nearest_keys(key, most=most),
    ]
    return tuple(dict.fromkeys(found))[:most]


def translate(alias: Alias, written: str, value: Any) -> Any:
    """Our value for a foreign one.

    Raises:
        LookupError: the value has no equivalent of ours.
    """
    if alias.values is None:
        return value
    text = str(as_text(value))
    if text not in alias.values:
        raise LookupError(f"{written}: {text} has no equivalent; write {alias.key}")
    return alias.values[text]


def canonicalize(data: Mapping[str, Any], package: str) -> tuple[dict[str, Any], list[Renamed], list[Fault]]:
    """A file's content with foreign words moved to their canonical keys.

    Args:
        data: What one file says.
        package: The dotted section the file's content belongs to; empty for the whole recipe.

    Returns:
        The content in our words, what was renamed, and a fault for each key said twice.
    """
    walk = _Walk(package)
    walk.section(data, ())
    return walk.content, walk.renamed, walk.faults


class _Walk:
    """One pass over a file's content."""

    def __init__(self, package: str) -> None:
        self.prefix = f"{package}." if package else ""
        self.content: dict[str, Any] = {}
        self.renamed: list[Renamed] = []
        self.faults: list[Fault] = []
        self.said: dict[tuple[str, ...], str] = {}

    def section(self, data: Mapping[str, Any], above: tuple[str, ...]) -> None:
        for name, value in data.items():
            path = (*above, name)
            key = self.prefix + ".".join(path)
            alias = find_alias(key)
            if alias is not None and alias.key.startswith(self.prefix):
                self._rename(alias, key, path, value)
            elif isinstance(value, dict) and value and _holds_keys(key):
                self.section(value, path)
            else:
                self._say(path, key, value)

    def _rename(self, alias: Alias, written: str, path: tuple[str, ...], value: Any) -> None:
        try:
            ours = translate(alias, written, value)
        except LookupError as reason:
            self.faults.append(Fault(what=str(reason.args[0]), keys=(written,), code="recipe.alias"))
            return
        self.renamed.append(Renamed(written=written, key=alias.key, path=path))
        self._say(tuple(alias.key.removeprefix(self.prefix).split(".")), written, ours)

    def _say(self, path: tuple[str, ...], written: str, value: Any) -> None:
        if path in self.said:
            key = self.prefix + ".".join(path)
            self.faults.append(
                Fault(
                    what=f"{self.said[path]} and {written} both set {key}",
                    keys=(written, self.said[path]),
                    suggestion=f"keep {key}",
                    code="recipe.said_twice",
                )
            )
        self.said[path] = written
        section = self.content
        for name in path[:-1]:
            section = section.setdefault(name, {})
            if not isinstance(section, dict):
                return  # a value where a section belongs: the decoder says so
        section[path[-1]] = value


def _holds_keys(key: str) -> bool:
    """Whether a mapping at ``key`` is a section of ours or of someone else, not a value of its own."""
    annotation = annotation_at(key)
    return annotation is None or is_section(annotation)
