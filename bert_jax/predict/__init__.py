"""``load(directory)`` -> ``Predictor``: text in, answers out, from any checkpoint directory."""

from bert_jax.predict.attention_map import AttentionMap
from bert_jax.predict.filling import MASKS_A_ROW, Filling, offered_pieces
from bert_jax.predict.predictor import Predictor, load
from bert_jax.predict.records import Answer, Choice, Classification, Entity, Tagging

__all__ = [
    "MASKS_A_ROW",
    "Answer",
    "AttentionMap",
    "Choice",
    "Classification",
    "Entity",
    "Filling",
    "Predictor",
    "Tagging",
    "load",
    "offered_pieces",
]
