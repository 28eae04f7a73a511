"""What a checkpoint holds, for who reads or gives one away."""

from __future__ import annotations

from pathlib import Path

from bert_jax.data.object_cache import check_nothing_at
from bert_jax.data.object_store import is_url
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.interop.translate import flat, listed, num_parameters
from bert_jax.training.source import Model, Source


def check_new(output: str | Path) -> None:
    """ValueError where something is in the way."""
    if is_url(output):
        return check_nothing_at(str(output))
    path = Path(output)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{output} exists; give another --output or delete it")


def load_report(source: Source, model: Model, tokenizer: Tokenizer) -> str:
    """What was read, a few lines."""
    config, params = source.config, flat(model.params)
    size = num_parameters(config, model.params)
    shared = f", {config.layers_a_group} layers share parameters" if config.layers_a_group > 1 else ""
    factors = f", embeddings of {config.embedding_size}" if config.embedding_size else ""
    heads = [name for name in model.params if name not in ("embeddings", "encoder")]
    case = "uncased" if tokenizer.lowercase else "cased"
    lines = [
        f"{source.directory}: {source.kind}",
        f"  encoder    {config.num_hidden_layers} layers x {config.hidden_size}, {config.num_attention_heads} heads,"
        f" {config.max_position_embeddings} positions, {config.hidden_act}{factors}{shared}",
        f"  heads      {', '.join(heads) or 'none'}",
        f"  labels     {listed(model.labels) if model.labels else 'none'}",
        f"  tokenizer  {tokenizer.kind}, {tokenizer.vocab_size:,} pieces, {case}; the model has {config.vocab_size:,}",
        f"  tensors    {len(params):,} read ({size:,} numbers), none missing,"
        f" unexpected: {listed(model.unexpected) or 'none'}",
    ]
    return "\n".join(lines)
