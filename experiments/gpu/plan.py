"""What ``gpu_check`` measures, in which order and for how long at most; and the same in small, for a CPU."""

from __future__ import annotations

from typing import Any, NamedTuple


class Part(NamedTuple):
    """A process of its own. seconds: at most; what it has written by then is kept."""

    name: str
    title: str
    seconds: float


class Case(NamedTuple):
    """A pre-training step. batches: rows, the most first; the first that fits is measured."""

    size: str
    seq: int
    batches: tuple[int, ...]


class Variant(NamedTuple):
    """Our step with other settings. changes: of ``BertConfig``. flags: of XLA.

    same_model: it trains what the default trains, and so may stand for it; without attention dropout it does not.
    """

    title: str
    changes: dict[str, Any]
    flags: str
    same_model: bool


class Rows(NamedTuple):
    """Inputs of attention alone: rows x seq, each row one full sequence, or ``packed`` with several."""

    rows: int
    seq: int
    packed: bool


class Plan(NamedTuple):
    """device: PyTorch's name of it. backend: of ``torch.compile``; a dry run's only traces, since writing and compiling
    C++ takes minutes. rounds of round_seconds each. queued: matrix products sent off together."""

    device: str
    backend: str
    vocab_size: int
    cases: dict[str, Case]
    rounds: int
    round_seconds: float
    matmul_sizes: tuple[int, ...]
    matmul_of: str
    queued: int
    correctness: Case
    attention: tuple[Rows, ...]
    attention_heads: int
    finetuning_size: str
    finetuning_batches: tuple[int, ...]
    finetuning_texts: tuple[int, int]
    finetuning_steps: int
    varied: str
    variants: tuple[Variant, ...]


# First what says whether the rest can be believed, then the aim, then the rest by worth. Together they can take longer
# than the whole may; then the last are not run, and `--only settings,layers` in a second call adds them to the page.
PARTS = (
    Part("machine", "The card and its peak", 60),
    Part("correctness", "bfloat16 against float32", 75),
    Part("large-128", "Pre-training LARGE at 128", 170),
    Part("base-128", "Pre-training BASE at 128", 110),
    Part("attention", "Attention", 60),
    Part("finetuning", "Packed fine-tuning", 110),
    Part("base-512", "Pre-training BASE at 512", 110),
    Part("large-512", "Pre-training LARGE at 512", 150),
    Part("settings", "Settings of LARGE at 128", 240),
    Part("layers", "Where the time of LARGE at 128 goes", 60),
)

# Flags are worth trying on one GPU only where they change kernels or how they are launched. The latency-hiding
# scheduler hides communication between devices, of which there is none here, so it is not among them;
# xla_gpu_triton_gemm_any and the autotuner's level are at their most by default. An unknown flag ends the process that
# is given it: that variant is then reported as failed and the others go on.
VARIANTS = (
    # One layer compiled and looped over: a fraction of the compilation, against copies of parameters and activations.
    Variant("scanned layers", {"scan_layers": True}, "", True),
    # The fused kernel needs attention dropout 0. The two beside each other say what the kernel and what dropout costs.
    Variant("attention dropout 0", {"attention_probs_dropout_prob": 0.0}, "", False),
    Variant(
        "attention dropout 0, auto",
        {"attention_probs_dropout_prob": 0.0, "attention_implementation": "auto"},
        "",
        False,
    ),
    Variant(
        "scanned layers, attention dropout 0, auto",
        {"scan_layers": True, "attention_probs_dropout_prob": 0.0, "attention_implementation": "auto"},
        "",
        False,
    ),
    # cuBLASLt adds the bias inside the matrix product, one pass over [r, t, f] less in each dense layer.
    Variant("scanned layers, cuBLASLt", {"scan_layers": True}, "--xla_gpu_enable_cublaslt=true", True),
    # XLA's Triton products can fuse what comes before them but know Hopper's tensor cores less well than cuBLAS; the
    # autotuner compares them one by one, without what fusing them or not does to the neighbours.
    Variant("scanned layers, no Triton products", {"scan_layers": True}, "--xla_gpu_enable_triton_gemm=false", True),
    # Launched one by one instead of as CUDA graphs: says how much of the step the launches are.
    Variant("scanned layers, no command buffers", {"scan_layers": True}, "--xla_gpu_enable_command_buffer=", True),
    # What all dropout together costs.
    Variant(
        "scanned layers, no dropout",
        {"scan_layers": True, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0},
        "",
        False,
    ),
)

GPU = Plan(
    device="cuda",
    backend="inductor",
    vocab_size=30522,
    cases={
        "large-128": Case("large", 128, (256, 128, 64, 32)),
        "base-128": Case("base", 128, (512, 256, 128, 64)),
        "base-512": Case("base", 512, (128, 64, 32, 16)),
        "large-512": Case("large", 512, (64, 32, 16, 8)),
    },
    rounds=3,
    round_seconds=1.5,
    matmul_sizes=(4096, 8192),
    matmul_of="large-128",
    queued=20,
    correctness=Case("base", 128, (8,)),
    attention=(Rows(256, 128, False), Rows(64, 512, False), Rows(64, 512, True)),
    attention_heads=16,
    finetuning_size="base",
    finetuning_batches=(32, 256),
    finetuning_texts=(8192, 2048),
    finetuning_steps=20,
    varied="large-128",
    variants=VARIANTS,
)

DRY_RUN_SECONDS = 600.0

DRY_RUN = Plan(
    device="cpu",
    backend="eager",
    vocab_size=200,
    cases={"large-128": Case("L2_H128", 16, (4, 2))},
    rounds=1,
    round_seconds=0.0,
    matmul_sizes=(64,),
    matmul_of="large-128",
    queued=2,
    correctness=Case("L2_H128", 16, (2,)),
    attention=(Rows(2, 128, True),),
    attention_heads=2,
    finetuning_size="L2_H128",
    finetuning_batches=(4,),
    finetuning_texts=(32, 8),
    finetuning_steps=1,
    varied="large-128",
    variants=VARIANTS[:1],
)


def plan_of(dry_run: bool) -> Plan:
    return DRY_RUN if dry_run else GPU


def parts_of(plan: Plan, only: str | None = None) -> list[Part]:
    """The plan's parts in order, or those of them named in ``only`` (comma-separated).

    Raises:
        ValueError: a name that the plan does not have.
    """
    parts = [part for part in PARTS if part.name not in GPU.cases or part.name in plan.cases]
    if plan is DRY_RUN:  # whether it runs is the question, however busy the CPU
        parts = [part._replace(seconds=DRY_RUN_SECONDS) for part in parts]
    if only is None:
        return parts
    names = [name for name in only.split(",") if name]
    if unknown := set(names) - {part.name for part in parts}:
        raise ValueError(f"--only has {min(unknown)}; take some of {','.join(part.name for part in parts)}")
    return [part for part in parts if part.name in names]
