"""Every key of a recipe: its meaning, unit, default, limits and tag.

A recipe is a tree of frozen dataclasses; the dotted path of a field is its one spelling everywhere
(YAML, command line, ``job.json``, Azure tag, MLflow parameter). Each field carries a tag:

* ``convergence``: changes what is learnt;
* ``mapping``: changes only where and how fast it is computed;
* ``runtime``: changes how the run is watched, stored or stopped;
* ``metadata``: changes nothing.

``None`` means "not asked": the default is then derived (and shown) by the plan.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

Tag = Literal["convergence", "mapping", "runtime", "metadata"]
Precision = Literal["fp32", "bf16", "fp16", "fp8"]
ActivationCheckpointing = Literal["none", "selective", "full"]
ModelType = Literal["gpt2", "gpt_neox", "llama", "mistral", "qwen3", "mixtral"]
Engine = Literal["ddp", "fsdp", "deepspeed"]
OffloadDevice = Literal["none", "cpu", "nvme"]


def key(
    tag: Tag,
    default: Any = MISSING,
    *,
    factory: Callable[[], Any] | None = None,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
) -> Any:
    """A recipe key: its tag, default and numeric limits (inclusive, but ``above`` is exclusive)."""
    limits = {"at_least": at_least, "above": above, "at_most": at_most}
    metadata = {"tag": tag} | {name: value for name, value in limits.items() if value is not None}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Model:
    """The shape of a decoder-only transformer, in the words of a Hugging Face ``config.json``."""

    model_type: ModelType = key("convergence", "gpt2")
    """Hugging Face model type: which blocks the layers are made of."""
    hidden_size: int = key("convergence", at_least=1)
    """Width of the residual stream."""
    num_hidden_layers: int = key("convergence", at_least=1)
    """Decoder layers."""
    num_attention_heads: int = key("convergence", at_least=1)
    """Query heads per layer."""
    num_key_value_heads: int | None = key("convergence", None, at_least=1)
    """Key/value heads per layer (grouped-query attention); as many as query heads when not given."""
    head_dim: int | None = key("convergence", None, at_least=1)
    """Width of one head; ``hidden_size / num_attention_heads`` when not given."""
    intermediate_size: int | None = key("convergence", None, at_least=1)
    """Width of the feed-forward block; ``4 * hidden_size`` when not given."""
    vocab_size: int = key("convergence", at_least=2)
    """Rows of the embedding table, in tokens."""
    max_position_embeddings: int = key("convergence", 2048, at_least=1)
    """Longest sequence the model can see, in tokens; learned positions (gpt2) have as many rows."""
    tie_word_embeddings: bool = key("convergence", True)
    """Whether the output projection shares the input embedding's weights."""
    hidden_act: str | None = key("convergence", None)
    """Activation of the feed-forward block, as transformers names it; the model type's own when not given."""
    rope_theta: float = key("convergence", 10000.0, above=0)
    """Base of the rotary position embedding (not used by gpt2)."""
    norm_eps: float = key("convergence", 1e-5, above=0)
    """Epsilon of layer norm or RMS norm."""
    initializer_range: float = key("convergence", 0.02, above=0)
    """Standard deviation of freshly drawn weights."""
    dropout: float = key("convergence", 0.0, at_least=0, at_most=0.9)
    """Dropout probability on residuals, embeddings and attention, where the model type has them."""
    num_local_experts: int = key("convergence", 0, at_least=0)
    """Experts per mixture-of-experts layer; 0 for a dense model."""
    num_experts_per_tok: int = key("convergence", 2, at_least=1)
    """Experts each token is routed to; read only when ``num_local_experts > 0``."""
    moe_intermediate_size: int | None = key("convergence", None, at_least=1)
    """Width of one expert; ``intermediate_size`` when not given."""
    router_aux_loss_coef: float = key("convergence", 0.001, at_least=0)
    """Weight of the load-balancing loss; read only when ``num_local_experts > 0``."""
    init_from: str | None = key("convergence", None)
    """Start from these weights: a Hugging Face folder, an ``azureml:`` model, or a run's handle."""
    init_optimizer: bool = key("convergence", False)
    """Whether Adam's moments come along from ``init_from``, a run or checkpoint of ours; steps count from 0 again."""


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """AdamW (Loshchilov and Hutter, arXiv:1711.05101)."""

    name: Literal["adamw"] = key("convergence", "adamw")
    """The optimizer."""
    learning_rate: float = key("convergence", 3e-4, above=0)
    """Peak learning rate, reached at the end of warm-up."""
    beta1: float = key("convergence", 0.9, at_least=0, at_most=0.9999999)
    """Decay of the first moment."""
    beta2: float = key("convergence", 0.95, at_least=0, at_most=0.9999999)
    """Decay of the second moment."""
    epsilon: float = key("convergence", 1e-8, above=0)
    """Added to the root of the second moment."""
    weight_decay: float = key("convergence", 0.1, at_least=0)
    """Decoupled weight decay, applied to matrices only (not to biases and norms)."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rate over optimizer steps: linear warm-up, then ``name``."""

    name: Literal["constant", "linear", "cosine", "wsd"] = key("convergence", "cosine")
    """Shape after warm-up; ``wsd`` = warm-up, stable, linear decay over the last ``decay_steps``."""
    warmup_steps: int = key("convergence", 0, at_least=0)
    """Optimizer steps from 0 to the peak learning rate."""
    decay_steps: int | None = key("convergence", None, at_least=1)
    """Steps over which the rate falls; up to the last step when not given."""
    min_learning_rate_ratio: float = key("convergence", 0.1, at_least=0, at_most=1)
    """Final learning rate divided by the peak."""


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Low-rank adapters beside frozen weights (Hu et al., arXiv:2106.09685), made by peft."""

    rank: int = key("convergence", 0, at_least=0)
    """Rank of each update (peft's ``r``); 0 trains all weights."""
    alpha: float = key("convergence", 16.0, above=0)
    """The update is scaled by ``alpha / rank``."""
    dropout: float = key("convergence", 0.0, at_least=0, at_most=0.9)
    """Dropout probability on the adapters' input."""
    target_modules: tuple[str, ...] = key("convergence", ())
    """Last names of the adapted linear layers; all of a layer's (of attention alone where it has experts) if empty."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """What one optimizer step sees, for how long, and how it is computed."""

    seq_length: int = key("convergence", at_least=1)
    """Tokens per sequence."""
    global_batch_size: int = key("convergence", at_least=1)
    """Sequences per optimizer step over all ranks = micro x data-parallel x accumulation."""
    micro_batch_size: int = key("mapping", 1, at_least=1)
    """Sequences per data-parallel rank per forward pass; bounded by memory."""
    gradient_accumulation_steps: int | None = key("mapping", None, at_least=1)
    """Derived: ``global / (micro x data-parallel)``. Given, it is checked."""
    train_steps: int | None = key("convergence", None, at_least=1)
    """Optimizer steps to run; exactly one of ``train_steps`` and ``train_tokens`` is given."""
    train_tokens: int | None = key("convergence", None, at_least=1)
    """Tokens to see; exactly one of ``train_steps`` and ``train_tokens`` is given."""
    precision: Precision = key("convergence", "bf16")
    """Arithmetic of matrix products; bf16, fp16 and fp8 keep fp32 master weights."""
    activation_checkpointing: ActivationCheckpointing = key("mapping", "none")
    """What the backward pass recomputes: nothing, attention only (selective), or each layer from its input (full)."""
    attention: Literal["sdpa", "flash", "eager"] = key("mapping", "sdpa")
    """Attention kernel; ``eager`` materialises the score matrix."""
    compile: bool = key("mapping", False)
    """Whether torch.compile fuses each layer."""
    gradient_clipping: float = key("convergence", 1.0, at_least=0)
    """Largest global L2 norm of the gradient; 0 never clips."""
    seed: int = key("convergence", 1234, at_least=0)
    """Seed of weights, data order and dropout."""
    evaluation_interval_steps: int = key("runtime", 0, at_least=0)
    """Optimizer steps between evaluations on held-out text; 0 evaluates at the end only."""
    evaluation_batches: int = key("runtime", 8, at_least=0)
    """Global batches per evaluation; 0 never evaluates."""
    optimizer: Optimizer = key("convergence", factory=Optimizer)
    """Optimizer and its numbers."""
    schedule: Schedule = key("convergence", factory=Schedule)
    """Learning rate over steps."""
    lora: Lora = key("convergence", factory=Lora)
    """Adapters instead of all weights."""
    profile: str | None = key("runtime", None)
    """Record these steps with torch's profiler: ``steps:10-12``, first and last."""


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """How the work is divided: ``world = tensor x pipeline x context x data``."""

    engine: Engine = key("mapping", "ddp")
    """Who shards: torch DDP, torch FSDP2 (with DTensor and pipelining), or DeepSpeed."""
    tensor_parallel_size: int = key("mapping", 1, at_least=1)
    """Ranks that share each matrix product (Megatron's tensor model parallelism)."""
    pipeline_parallel_size: int = key("mapping", 1, at_least=1)
    """Ranks that hold consecutive slices of the layers."""
    virtual_pipeline_parallel_size: int | None = key("mapping", None, at_least=1)
    """Slices per pipeline rank (interleaved schedule); one when not given."""
    pipeline_schedule: Literal["gpipe", "1f1b", "interleaved", "zero_bubble"] | None = key("mapping", None)
    """Order of pipeline work; 1f1b, or interleaved when there are virtual stages."""
    context_parallel_size: int = key("mapping", 1, at_least=1)
    """Ranks that share each sequence's tokens (ring attention, or Ulysses under DeepSpeed)."""
    expert_parallel_size: int = key("mapping", 1, at_least=1)
    """Ranks that share the experts of a layer; taken out of the data-parallel ranks."""
    data_parallel_size: int | None = key("mapping", None, at_least=1)
    """Derived: ``world / (tensor x pipeline x context)``. Given, it is checked."""
    sequence_parallel: bool = key("mapping", False)
    """Whether norms and dropout are sharded over tensor-parallel ranks (arXiv:2205.05198); not context parallelism."""
    zero_stage: Literal[0, 1, 2, 3] = key("mapping", 0)
    """What is sharded over data-parallel ranks: 1 optimizer state, 2 + gradients, 3 + parameters (ZeRO; FSDP is 3)."""
    shard_group_size: int | None = key("mapping", None, at_least=1)
    """Data-parallel ranks one shard group spans (HSDP); all of them when not given."""
    offload_optimizer: OffloadDevice = key("mapping", "none")
    """Where optimizer state lives when not on the GPU."""
    offload_parameters: OffloadDevice = key("mapping", "none")
    """Where ZeRO-3 parameters live when not in use."""
    deepspeed: dict[str, Any] = key("mapping", factory=dict)
    """Extra DeepSpeed configuration, checked and merged over the generated one (bucket sizes and the like)."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What is read: text or tokenized shards, and how it becomes sequences."""

    train: tuple[str, ...] = key("convergence", ())
    """``.bin/.idx`` prefixes (Megatron), .txt, .jsonl or .parquet, one or a pattern; ``demo`` is the shipped text."""
    train_weights: tuple[float, ...] = key("convergence", ())
    """Relative weights of the training corpora; by size when not given."""
    validation: tuple[str, ...] = key("convergence", ())
    """Held-out corpora; the last ``validation_fraction`` of each training corpus when not given."""
    validation_fraction: float = key("convergence", 0.05, at_least=0, at_most=0.5)
    """Share of each training corpus held out, by tokens; read only when ``validation`` is empty."""
    tokenizer: str = key("convergence", "bytes")
    """``bytes``, ``bpe`` (trained on the training text), or a Hugging Face tokenizer folder; unused for shards."""
    format: Literal["text", "instruction"] = key("convergence", "text")
    """A JSON line holds text; or ``messages`` (or ``prompt`` and ``completion``), of which only replies are learnt."""
    text_key: str = key("convergence", "text")
    """Field of a JSON line, or column of a parquet file, that holds the text."""
    packing: Literal["concatenate", "whole_documents"] = key("convergence", "concatenate")
    """How documents fill sequences: one after the other and cut anywhere (as Megatron does), or whole, with padding."""
    reset_at_documents: bool = key("convergence", False)
    """Whether attention and positions start anew at each document inside a sequence."""
    shuffle: bool = key("convergence", True)
    """Whether sequences are visited in an order drawn from ``training.seed``; by position otherwise."""
    num_workers: int = key("runtime", 0, at_least=0)
    """Threads per rank that read ahead; 0 reads when the step asks."""
    verify: Literal["size", "digest"] = key("runtime", "size")
    """What is checked of each shard before the first step: its size, or every byte against the recorded digest."""
    quarantine_limit: int = key("convergence", 0, at_least=0)
    """Bad shards that may be left out, each with a warning; one more stops the run."""
    mount: Literal["mount", "download"] = key("runtime", "mount")
    """How an Azure ML job sees remote data."""
    inputs: dict[str, str] = key("convergence", factory=dict)
    """Named remote inputs of a team's script (``azureml:corpus:3``); ``${{inputs.NAME}}`` in ``entry.arguments``."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where it runs: VM size x count x backend."""

    backend: Literal["local", "azureml"] = key("runtime", "local")
    """The door: processes on this machine, or an Azure ML job."""
    instance_type: str = key("mapping", "local_cpu")
    """Azure VM size (``Standard_ND96isr_H100_v5``), or ``local_cpu`` / ``local_gpu``."""
    instance_count: int = key("mapping", 1, at_least=1, at_most=100_000)
    """VMs (nodes)."""
    processes_per_instance: int | None = key("mapping", None, at_least=1)
    """Ranks per VM; one per GPU when not given (on a CPU: 1)."""
    accelerator: str | None = key("mapping", None)
    """Catalogue name of the GPU, for ``local_gpu`` or a size the catalogue lacks."""
    device_memory_gib: float | None = key("mapping", None, above=0)
    """Usable memory per rank, overriding the catalogue."""
    compute: str | None = key("runtime", None)
    """Azure ML compute target; serverless when not given."""
    tier: Literal["dedicated", "spot"] = key("runtime", "dedicated")
    """Whether the VMs can be taken away (spot = low priority)."""
    workspace: str | None = key("runtime", None)
    """Azure ML workspace."""
    resource_group: str | None = key("runtime", None)
    """Azure resource group of the workspace."""
    subscription_id: str | None = key("runtime", None)
    """Azure subscription."""
    region: str | None = key("runtime", None)
    """Azure region; decides price and grid carbon."""
    shm_size: str | None = key("runtime", None)
    """Shared memory of the container (``64g``); from the VM size when not given, never Azure ML's 2g."""
    datastore: str = key("runtime", "workspaceblobstore")
    """Azure ML datastore that holds the run's output folder."""
    identity: Literal["job_token", "managed", "user"] | None = key("runtime", None)
    """Who the Azure ML job is when it reads and writes data; the compute's own setting when not given."""
    priority: Literal["low", "medium", "high"] | None = key("runtime", None)
    """Place in the Azure ML queue."""
    kubernetes_instance_type: str | None = key("runtime", None)
    """InstanceType of a Kubernetes compute target (AKS); given, ``compute`` is such a target."""
    services: tuple[Literal["ssh", "tensor_board", "vs_code", "jupyter_lab"], ...] = key("runtime", ())
    """Doors into the running Azure ML job, on every node."""
    ssh_public_key: str | None = key("runtime", None)
    """Public key that may enter through the ``ssh`` service."""
    price_dollars_per_hour: float | None = key("metadata", None, at_least=0)
    """Price of one VM, overriding the catalogue (your own contract)."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The software the job runs in."""

    name: str = key("runtime", "cpu")
    """Folder of ``environments/``."""
    image: str | None = key("runtime", None)
    """Container image to use instead."""
    asset: str | None = key("runtime", None)
    """Registered Azure ML environment to use instead: ``azureml:NAME:VERSION`` or ``azureml:NAME@latest``."""
    variables: dict[str, str] = key("runtime", factory=dict)
    """Environment variables of every rank; values are text."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """When state is saved and how a run resumes."""

    directory: str | None = key("runtime", None)
    """Where checkpoints go; the run's own output folder when not given."""
    interval_steps: int = key("runtime", 0, at_least=0)
    """Optimizer steps between checkpoints; 0 saves at the end only."""
    keep: int = key("runtime", 3, at_least=1)
    """Newest checkpoints kept."""
    resume: Literal["auto", "never", "required"] = key("runtime", "auto")
    """Continue from the newest whole checkpoint: if there is one, not at all, or fail without one."""


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """Where metrics go."""

    enabled: bool = key("runtime", True)
    """Whether MLflow is used at all; the local spool is written always."""
    uri: str | None = key("runtime", None)
    """MLflow tracking server; an SQLite file under ``$LAUNCHER_HOME``, or the Azure ML workspace, when not given."""
    experiment: str = key("metadata", "launcher")
    """MLflow and Azure ML experiment name."""
    log_interval_steps: int = key("runtime", 1, at_least=1)
    """Optimizer steps between metric rows."""
    system_metrics: bool = key("runtime", True)
    """Whether CPU, memory and GPU use of each node are recorded."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When to stop."""

    timeout_hours: float | None = key("runtime", None, above=0)
    """Wall time after which the run is ended."""
    budget_dollars: float | None = key("runtime", None, at_least=0)
    """A dearer plan is refused."""
    max_restarts: int = key("runtime", 0, at_least=0)
    """Times all ranks are restarted from the newest checkpoint after one dies."""
    hang_timeout_minutes: float | None = key("runtime", None, above=0)
    """Minutes without a step after which stacks are dumped and the ranks ended (at least 5 usual steps); or never."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What each rank runs: our trainer, or a team's own script."""

    script: str | None = key("convergence", None)
    """Python file each rank runs instead of the built-in trainer; rank variables are set as torchrun sets them."""
    arguments: tuple[str, ...] = key("convergence", ())
    """Arguments of ``script``."""
    launcher: Literal["none", "torchrun"] = key("mapping", "none")
    """Who starts the ranks of a node on Azure ML: the service, one per GPU, or one torchrun per node."""
    include: tuple[str, ...] = key("runtime", ())
    """Files and folders that travel with the code although git does not track them."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What was asked: resolved, typed, frozen."""

    name: str = key("metadata", "unnamed")
    """Short name; becomes part of the job's name."""
    description: str = key("metadata", "")
    """One line for listings."""
    tags: dict[str, str] = key("metadata", factory=dict)
    """Free tags, sent to Azure ML and MLflow."""
    model: Model
    """Shape of the model."""
    training: Training
    """Batch, length, precision, optimizer."""
    parallelism: Parallelism = key("mapping", factory=Parallelism)
    """How the work is divided."""
    data: Data = key("convergence", factory=Data)
    """What is read."""
    cluster: Cluster = key("mapping", factory=Cluster)
    """Where it runs."""
    environment: Environment = key("runtime", factory=Environment)
    """The software it runs in."""
    checkpoint: Checkpoint = key("runtime", factory=Checkpoint)
    """Saving and resuming."""
    tracking: Tracking = key("runtime", factory=Tracking)
    """Where metrics go."""
    limits: Limits = key("runtime", factory=Limits)
    """When to stop."""
    entry: Entry = key("convergence", factory=Entry)
    """What each rank runs."""
    calibration: dict[str, float] = key("metadata", factory=dict)
    """Constants of your own stack that the plan uses instead of the shipped ones, as ``launcher calibrate`` wrote."""
