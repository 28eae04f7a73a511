"""Our parameters' paths -> the tensor names of other programs: a table for each of their layouts.

A layout goes one way and serves reading and writing alike: both walk over ``parameters(config, heads)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bert_jax.model.config import BertConfig

# Heads of a fine-tuned model; it has one at most.
TASK_HEADS = ("classifier", "regressor", "choice_head", "tagging_head", "qa_head")
FOR_TOKENS = ("tagging_head", "qa_head")
# Those that are on top of the pooler, and those whose outputs have names.
POOLED, OF_LABELS = ("classifier", "regressor", "choice_head"), ("classifier", "tagging_head")
# The number of outputs of heads that have always as many.
OUTPUTS = {"nsp_head": 2, "regressor": 1, "choice_head": 1, "qa_head": 2}
# Padded to config.padded_vocab_size in our tree, and nowhere else.
OF_VOCABULARY = ("embeddings/word/embedding", "mlm_head/bias")

_ONE_OUTPUT_LAYER = r"classifier|regressor|choice_head|tagging_head"


class Parameter(NamedTuple):
    """A parameter's path and shape in our tree, without the rows that pad the vocabulary."""

    path: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """How another program calls and keeps parameters.

    Attributes:
        modules: (regex of a module's path, its name there); the first match counts.
        whole: parameter's path -> its name, for those that are not a module's name and a leaf's.
        leaves: our leaf -> theirs; "layer_norm/bias" before "bias".
        separator: of the components of a name.
        transposed: regex of the paths whose matrices are [outputs, inputs] there.
        tied: the second names of tensors -> the first.
        prefix: what their models with a head put before the encoder's names.
    """

    modules: tuple[tuple[str, str], ...]
    whole: Mapping[str, str]
    leaves: Mapping[str, str]
    separator: str
    transposed: str
    tied: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""

    def name(self, path: str) -> str:
        """Their name of the parameter at our path. ValueError: they have none."""
        if path in self.whole:
            return self.whole[path]
        module, _, leaf = path.rpartition("/")
        kind = module.rpartition("/")[2]
        for pattern, theirs in self.modules:
            if match := re.fullmatch(pattern, module):
                found = self.leaves.get(f"{kind}/{leaf}") or self.leaves.get(leaf, leaf)
                return f"{match.expand(theirs)}{self.separator}{found}"
        raise ValueError(f"{path} has no counterpart in this format")

    def is_transposed(self, path: str) -> bool:
        return re.fullmatch(self.transposed, path) is not None


def parameters(config: BertConfig, heads: Mapping[str, int]) -> list[Parameter]:
    """All parameters of an encoder with ``heads``: "pooler", "mlm_head", "nsp_head", or one of ``TASK_HEADS``.

    Args:
        heads: name -> number of outputs; of the first two any number.
    """
    d, e, v = config.hidden_size, config.embedding_width, config.vocab_size
    found = [
        Parameter("embeddings/word/embedding", (v, e)),
        Parameter("embeddings/position/embedding", (config.max_position_embeddings, e)),
        Parameter("embeddings/segment/embedding", (config.type_vocab_size, e)),
        *_layer_norm("embeddings", e),
    ]
    if config.embedding_size is not None:
        found += _dense("embeddings/projection", e, d)
    for i in range(config.num_groups):
        found += _layer(f"encoder/layer_{i}", d, config.intermediate_size)
    for name, outputs in heads.items():
        if name == "mlm_head":
            found += [*_dense("mlm_head/dense", d, e), *_layer_norm("mlm_head", e), Parameter("mlm_head/bias", (v,))]
        else:
            found += _dense(name, d, d if name == "pooler" else outputs)
    return found


def _layer(path: str, d: int, f: int) -> list[Parameter]:
    return [
        *(one for part in ("query", "key", "value", "output") for one in _dense(f"{path}/attention/{part}", d, d)),
        *_layer_norm(f"{path}/attention", d),
        *_dense(f"{path}/feed_forward/intermediate", d, f),
        *_dense(f"{path}/feed_forward/output", f, d),
        *_layer_norm(f"{path}/feed_forward", d),
    ]


def _dense(path: str, inputs: int, outputs: int) -> list[Parameter]:
    return [Parameter(f"{path}/kernel", (inputs, outputs)), Parameter(f"{path}/bias", (outputs,))]


def _layer_norm(path: str, d: int) -> list[Parameter]:
    return [Parameter(f"{path}/layer_norm/scale", (d,)), Parameter(f"{path}/layer_norm/bias", (d,))]


_PYTORCH_EMBEDDINGS = {
    "embeddings/word/embedding": "embeddings.word_embeddings.weight",
    "embeddings/position/embedding": "embeddings.position_embeddings.weight",
    "embeddings/segment/embedding": "embeddings.token_type_embeddings.weight",
}
_PYTORCH_LEAVES = {"kernel": "weight", "scale": "weight"}
_PYTORCH_BERT_ENCODER = (
    (r"embeddings/layer_norm", r"embeddings.LayerNorm"),
    (r"encoder/layer_(\d+)/attention/(query|key|value)", r"encoder.layer.\1.attention.self.\2"),
    (r"encoder/layer_(\d+)/attention/output", r"encoder.layer.\1.attention.output.dense"),
    (r"encoder/layer_(\d+)/attention/layer_norm", r"encoder.layer.\1.attention.output.LayerNorm"),
    (r"encoder/layer_(\d+)/feed_forward/(intermediate|output)", r"encoder.layer.\1.\2.dense"),
    (r"encoder/layer_(\d+)/feed_forward/layer_norm", r"encoder.layer.\1.output.LayerNorm"),
)
_PYTORCH_HEADS = ((_ONE_OUTPUT_LAYER, r"classifier"), (r"qa_head", r"qa_outputs"))

HUGGING_FACE_BERT = Layout(
    modules=(
        *_PYTORCH_BERT_ENCODER,
        (r"pooler", r"pooler.dense"),
        (r"mlm_head/dense", r"cls.predictions.transform.dense"),
        (r"mlm_head/layer_norm", r"cls.predictions.transform.LayerNorm"),
        (r"nsp_head", r"cls.seq_relationship"),
        *_PYTORCH_HEADS,
    ),
    whole=_PYTORCH_EMBEDDINGS | {"mlm_head/bias": "cls.predictions.bias"},
    leaves=_PYTORCH_LEAVES,
    separator=".",
    transposed=r".*/kernel",
    tied={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    prefix="bert.",
)
HUGGING_FACE_ROBERTA = Layout(
    modules=(
        *_PYTORCH_BERT_ENCODER,
        (r"pooler", r"pooler.dense"),
        (r"mlm_head/(dense|layer_norm)", r"lm_head.\1"),
        *_PYTORCH_HEADS,
    ),
    whole=_PYTORCH_EMBEDDINGS | {"mlm_head/bias": "lm_head.bias"},
    leaves=_PYTORCH_LEAVES,
    separator=".",
    transposed=r".*/kernel",
    tied={"lm_head.decoder.weight": "embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
    prefix="roberta.",
)
_ALBERT_LAYER = r"encoder.albert_layer_groups.\1.albert_layers.0"
HUGGING_FACE_ALBERT = Layout(
    modules=(
        (r"embeddings/layer_norm", r"embeddings.LayerNorm"),
        (r"embeddings/projection", r"encoder.embedding_hidden_mapping_in"),
        (r"encoder/layer_(\d+)/attention/(query|key|value)", _ALBERT_LAYER + r".attention.\2"),
        (r"encoder/layer_(\d+)/attention/output", _ALBERT_LAYER + r".attention.dense"),
        (r"encoder/layer_(\d+)/attention/layer_norm", _ALBERT_LAYER + r".attention.LayerNorm"),
        (r"encoder/layer_(\d+)/feed_forward/intermediate", _ALBERT_LAYER + r".ffn"),
        (r"encoder/layer_(\d+)/feed_forward/output", _ALBERT_LAYER + r".ffn_output"),
        (r"encoder/layer_(\d+)/feed_forward/layer_norm", _ALBERT_LAYER + r".full_layer_layer_norm"),
        (r"pooler", r"pooler"),
        (r"mlm_head/dense", r"predictions.dense"),
        (r"mlm_head/layer_norm", r"predictions.LayerNorm"),
        (r"nsp_head", r"sop_classifier.classifier"),
        *_PYTORCH_HEADS,
    ),
    whole=_PYTORCH_EMBEDDINGS | {"mlm_head/bias": "predictions.bias"},
    leaves=_PYTORCH_LEAVES,
    separator=".",
    transposed=r".*/kernel",
    tied={
        "predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    prefix="albert.",
)

_GOOGLE_WHOLE = {
    "embeddings/word/embedding": "bert/embeddings/word_embeddings",
    "embeddings/position/embedding": "bert/embeddings/position_embeddings",
    "embeddings/segment/embedding": "bert/embeddings/token_type_embeddings",
    "mlm_head/bias": "cls/predictions/output_bias",
    "nsp_head/kernel": "cls/seq_relationship/output_weights",
    "nsp_head/bias": "cls/seq_relationship/output_bias",
    "qa_head/kernel": "cls/squad/output_weights",
    "qa_head/bias": "cls/squad/output_bias",
}
# run_classifier.py's names; taggers and choosers derived from it keep them.
_GOOGLE_WHOLE |= {f"{head}/kernel": "output_weights" for head in _ONE_OUTPUT_LAYER.split("|")}
_GOOGLE_WHOLE |= {f"{head}/bias": "output_bias" for head in _ONE_OUTPUT_LAYER.split("|")}
_GOOGLE_LEAVES = {"layer_norm/scale": "gamma", "layer_norm/bias": "beta"}
_GOOGLE_TRANSPOSED = rf"(nsp_head|qa_head|{_ONE_OUTPUT_LAYER})/kernel"
_GOOGLE_AROUND = (
    (r"embeddings/layer_norm", r"bert/embeddings/LayerNorm"),
    (r"pooler", r"bert/pooler/dense"),
    (r"mlm_head/dense", r"cls/predictions/transform/dense"),
    (r"mlm_head/layer_norm", r"cls/predictions/transform/LayerNorm"),
)
GOOGLE_BERT = Layout(
    modules=(
        *_GOOGLE_AROUND,
        (r"encoder/layer_(\d+)/attention/(query|key|value)", r"bert/encoder/layer_\1/attention/self/\2"),
        (r"encoder/layer_(\d+)/attention/output", r"bert/encoder/layer_\1/attention/output/dense"),
        (r"encoder/layer_(\d+)/attention/layer_norm", r"bert/encoder/layer_\1/attention/output/LayerNorm"),
        (r"encoder/layer_(\d+)/feed_forward/(intermediate|output)", r"bert/encoder/layer_\1/\2/dense"),
        (r"encoder/layer_(\d+)/feed_forward/layer_norm", r"bert/encoder/layer_\1/output/LayerNorm"),
    ),
    whole=_GOOGLE_WHOLE,
    leaves=_GOOGLE_LEAVES,
    separator="/",
    transposed=_GOOGLE_TRANSPOSED,
)
_GOOGLE_GROUP = r"bert/encoder/transformer/group_\1/inner_group_0"
GOOGLE_ALBERT = Layout(
    modules=(
        *_GOOGLE_AROUND,
        (r"embeddings/projection", r"bert/encoder/embedding_hidden_mapping_in"),
        (r"encoder/layer_(\d+)/attention/(query|key|value)", _GOOGLE_GROUP + r"/attention_1/self/\2"),
        (r"encoder/layer_(\d+)/attention/output", _GOOGLE_GROUP + r"/attention_1/output/dense"),
        (r"encoder/layer_(\d+)/attention/layer_norm", _GOOGLE_GROUP + r"/LayerNorm"),
        (r"encoder/layer_(\d+)/feed_forward/intermediate", _GOOGLE_GROUP + r"/ffn_1/intermediate/dense"),
        (r"encoder/layer_(\d+)/feed_forward/output", _GOOGLE_GROUP + r"/ffn_1/intermediate/output/dense"),
        (r"encoder/layer_(\d+)/feed_forward/layer_norm", _GOOGLE_GROUP + r"/LayerNorm_1"),
    ),
    whole=_GOOGLE_WHOLE,
    leaves=_GOOGLE_LEAVES,
    separator="/",
    transposed=_GOOGLE_TRANSPOSED,
)
