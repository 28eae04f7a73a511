"""The encoder's configuration: BERT's own names, so that a released `bert_config.json` loads unchanged."""

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

ACTIVATIONS = ("gelu", "gelu_new", "gelu_tanh", "gelu_pytorch_tanh", "relu")
ATTENTION_DIRECTIONS = ("bidirectional", "left_to_right", "right_to_left")
ATTENTION_IMPLEMENTATIONS = ("xla", "auto")
COMPUTE_DTYPES = ("float32", "bfloat16")

# Tables sharded over the vocabulary need a row count that every mesh divides, and matrix units like 128.
VOCAB_MULTIPLE = 128


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Sizes and numerics of a BERT encoder. The defaults are BERT-BASE, uncased English vocabulary.

    Fields up to `layer_norm_eps` are BERT's own (Devlin et al. 2019, sections 3 and A.2). The two after it are ALBERT's
    (Lan et al. 2020, section 3.1): `embedding_size` (width of the embedding tables; given, a
    dense layer follows them) and `num_hidden_groups` (layers of one group share their parameters). Those below are
    ours: `attention_direction` (what a token may attend to; "left_to_right" is the paper's LTR ablation),
    `dtype` (of the computation; parameters, statistics, softmax and loss are always float32), `scan_layers`
    (compile one layer and loop over it), `remat` (recompute a layer's activations in the backward pass),
    `attention_implementation` ("xla" is the reference, "auto" takes a fused kernel where there is one). None
    of ours changes the parameter tree.

    Raises ValueError for sizes that cannot work together.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    embedding_size: int | None = None  # hidden_size
    num_hidden_groups: int | None = None  # num_hidden_layers
    attention_direction: str = "bidirectional"
    dtype: str = "float32"
    scan_layers: bool = False
    remat: bool = False
    attention_implementation: str = "xla"

    def __post_init__(self) -> None:
        for name in _POSITIVE_INTEGERS + _POSITIVE_OR_NONE:
            value = getattr(self, name)
            if name in _POSITIVE_OR_NONE and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r} must be a positive integer")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not divisible by num_attention_heads="
                f"{self.num_attention_heads}; choose a divisor (BERT uses hidden_size / 64)"
            )
        if self.num_hidden_layers % (self.num_hidden_groups or 1):
            raise ValueError(
                f"num_hidden_layers={self.num_hidden_layers} is not divisible by num_hidden_groups="
                f"{self.num_hidden_groups}; choose a divisor (ALBERT uses 1)"
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0:
                raise ValueError(f"{name}={value!r} must be at least 0 and below 1 (0 switches dropout off)")
        for name in ("initializer_range", "layer_norm_eps"):
            value = getattr(self, name)
            if not value > 0.0:
                raise ValueError(f"{name}={value!r} must be greater than 0")
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name}={value!r} is not one of {', '.join(choices)}")

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        """Width of the embedding tables and of the masked-LM head."""
        return self.embedding_size or self.hidden_size

    @property
    def num_groups(self) -> int:
        """How many layers have parameters of their own; in BERT all."""
        return self.num_hidden_groups or self.num_hidden_layers

    @property
    def layers_a_group(self) -> int:
        """How many layers, one after the other, have the same parameters; 1 in BERT."""
        return self.num_hidden_layers // self.num_groups

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the word embedding: vocab_size rounded up to a multiple of 128. The true rows come first."""
        return -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE

    def replace(self, **changes: Any) -> "BertConfig":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "BertConfig":
        """From a mapping with our keys, Google's or Hugging Face's.

        Keys that are not about the encoder's mathematics are passed over (unknown ones with a logged
        warning). Raises ValueError for a key whose value asks for a model that this one is not.
        """
        for key, accepted in _ONLY_ACCEPTED.items():
            if key in values and values[key] not in accepted:
                raise ValueError(f"{key}={values[key]!r} is not supported by this encoder; it must be {accepted[0]!r}")
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(values.keys() - known - _HARMLESS_KEYS - _ONLY_ACCEPTED.keys())
        if unknown:
            logging.getLogger(__name__).warning("model config: keys without effect here: %s", ", ".join(unknown))
        return cls(**{key: value for key, value in values.items() if key in known})

    @classmethod
    def from_json(cls, path: str | Path) -> "BertConfig":
        """Reads a `bert_config.json` or Hugging Face `config.json`. Raises FileNotFoundError, ValueError."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no model config at {path}; expected a bert_config.json or config.json")
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError(f"{path} holds a {type(values).__name__}; expected a JSON object")
        return cls.from_dict(values)

    def to_json(self, path: str | Path) -> None:
        """Writes every field, so that `from_json` gives an equal config."""
        text = json.dumps(dataclasses.asdict(self), indent=2) + "\n"
        Path(path).write_text(text, encoding="utf-8")

    @classmethod
    def of_size(cls, name: str, **changes: Any) -> "BertConfig":
        """A released or published size by name ("base", "tiny", "L4_H256"; see `released_sizes`)."""
        sizes = released_sizes()
        if name not in sizes:
            raise ValueError(f"size {name!r} is not one of {', '.join(sizes)}")
        return sizes[name].replace(**changes)


def released_sizes() -> dict[str, BertConfig]:
    """Name -> config: BASE, LARGE, the rows of the paper's Table 6, and the 24 small ones of Turc et al. 2019.

    The small ones are "L{layers}_H{hidden}" with hidden / 64 heads, five of them also under their nickname;
    Table 6's rows are "L{layers}_H{hidden}_A{heads}".
    """
    sizes = {f"L{layers}_H{hidden}": _sized(layers, hidden) for layers in _SMALL_LAYERS for hidden in _SMALL_HIDDEN}
    for layers, hidden, heads in _TABLE_6:
        sizes[f"L{layers}_H{hidden}_A{heads}"] = _sized(layers, hidden, heads)
    nicknames = {name: sizes[f"L{layers}_H{hidden}"] for name, (layers, hidden) in _NICKNAMES.items()}
    return nicknames | {"base": _sized(12, 768), "large": _sized(24, 1024)} | sizes


def _sized(layers: int, hidden: int, heads: int | None = None) -> BertConfig:
    return BertConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads or hidden // 64,
        intermediate_size=4 * hidden,
    )


_SMALL_LAYERS = (2, 4, 6, 8, 10, 12)
_SMALL_HIDDEN = (128, 256, 512, 768)
_NICKNAMES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512)}
_TABLE_6 = ((3, 768, 12), (6, 768, 3), (6, 768, 12), (12, 768, 12), (12, 1024, 16), (24, 1024, 16))

_POSITIVE_INTEGERS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
_POSITIVE_OR_NONE = ("embedding_size", "num_hidden_groups")
_CHOICES: dict[str, tuple[str, ...]] = {
    "hidden_act": ACTIVATIONS,
    "attention_direction": ATTENTION_DIRECTIONS,
    "dtype": COMPUTE_DTYPES,
    "attention_implementation": ATTENTION_IMPLEMENTATIONS,
}
# Keys of other writers that change the mathematics unless they hold one of these values.
_ONLY_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert",),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "tie_word_embeddings": (True, None),
    "chunk_size_feed_forward": (0, None),
    "inner_group_num": (1, None),
}
# fmt: off
_HARMLESS_KEYS = frozenset((
    "_name_or_path", "_attn_implementation_autoset", "architectures", "attn_implementation",
    "bos_token_id", "classifier_dropout", "classifier_dropout_prob", "directionality", "do_lower_case",
    "down_scale_factor", "eos_token_id", "finetuning_task", "gap_size", "gradient_checkpointing", "id2label",
    "label2id", "language", "ln_type", "name", "net_structure_type", "num_labels", "num_memory_blocks",
    "output_attentions", "output_hidden_states", "output_past", "pad_token_id", "pooler_fc_size",
    "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
    "problem_type", "return_dict", "sep_token_id", "task_specific_params", "torch_dtype",
    "transformers_version", "use_cache", "vocab_file",
))
# fmt: on
