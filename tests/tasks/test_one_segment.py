"""A model with one segment, as RoBERTa's, takes pairs: all tokens are in its one."""

import numpy as np
import pytest

from bert_jax.data.byte_bpe import ByteBPE
from bert_jax.data.packing import Examples
from bert_jax.data.sequences import Sequence, pair
from bert_jax.data.vocabulary import learn_byte_bpe
from bert_jax.predict import Predictor
from bert_jax.predict.texts import Limit, read_texts
from bert_jax.tasks.fine_tuning import checked
from tests.interop.models import CONFIG, HEADS, TOKENIZER, random_params


def test_pairs_lie_in_its_one_segment() -> None:
    examples = Examples.of([pair([5, 6], [7], TOKENIZER)])
    assert examples.segment_ids.max() == 1
    assert not checked(examples, CONFIG.replace(type_vocab_size=1)).segment_ids.any()
    assert checked(examples, CONFIG) is examples
    with pytest.raises(ValueError, match="a token is of segment 3, the model has type_vocab_size=2"):
        checked(Examples.of([Sequence(np.asarray([2, 3], np.int32), np.asarray([0, 3], np.int32))]), CONFIG)


def test_the_predictor_takes_pairs() -> None:
    config = CONFIG.replace(type_vocab_size=1)
    model = Predictor(config, TOKENIZER, random_params(config, HEADS["classifier"]), name="roberta", step=0)
    assert model.classify(("a b", "c")).probability > 0


def test_the_predictor_counts_both_separators_of_a_pair() -> None:
    tokenizer: ByteBPE = learn_byte_bpe(["a b c"], 261)
    inputs = read_texts([("a", "b")], tokenizer, Limit(8, "the limit"))
    assert inputs.sequences[0].ids.tolist() == [2, *tokenizer.encode_ids("a"), 3, 3, *tokenizer.encode_ids("b"), 3]
    with pytest.raises(ValueError, match=r"text 0 has 8 tokens with \[CLS\] and \[SEP\], the limit is 7"):
        read_texts([("a", "b")], tokenizer, Limit(7, "the limit"))
