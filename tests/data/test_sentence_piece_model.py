"""Our description of a SentencePiece model is the library's own, where its protobuf can read that."""

import io

import pytest
import sentencepiece

from bert_jax.data.sentence_piece_model import CONTROL, parse_model


@pytest.fixture(scope="module")
def model():
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello world a b c", "the cat sat"] * 50),
        model_writer=stream,
        vocab_size=30,
        hard_vocab_limit=False,
        control_symbols="[CLS]",
        minloglevel=2,
    )
    return stream.getvalue()


def test_everything_is_kept_and_only_what_is_changed_changes(model):
    pb2 = pytest.importorskip(
        "sentencepiece.sentencepiece_model_pb2", reason="the library's code needs its protobuf", exc_type=Exception
    )
    ours, theirs = parse_model(model), pb2.ModelProto.FromString(model)
    assert [(p.piece, p.type) for p in ours.pieces] == [(p.piece, p.type) for p in theirs.pieces]
    assert pb2.ModelProto.FromString(ours.SerializeToString()) == theirs
    for proto in (ours, theirs):
        proto.pieces[7].type = CONTROL
        proto.normalizer_spec.add_dummy_prefix = False
    assert pb2.ModelProto.FromString(ours.SerializeToString()) == theirs


def test_the_library_reads_what_we_wrote(model):
    read = sentencepiece.SentencePieceProcessor(model_proto=parse_model(model).SerializeToString())
    assert read.encode("the cat sat") == sentencepiece.SentencePieceProcessor(model_proto=model).encode("the cat sat")
    proto = parse_model(model)
    proto.normalizer_spec.add_dummy_prefix = False
    changed = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    assert read.encode("cat", return_type=str)[0].startswith("▁")
    assert not changed.encode("cat", return_type=str)[0].startswith("▁")


def test_what_is_no_model_is_an_error():
    with pytest.raises(Exception, match="pars"):
        parse_model(b"\xff" * 9)
