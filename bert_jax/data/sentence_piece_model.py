"""What we read and change of a SentencePiece model's protocol buffer.

It is described here and not imported from the library: that generated code refuses every protobuf older than the one
it was made with (7.36 for sentencepiece 0.2.3), and so would rule out what asks for an older one, such as Apache Beam.
A file's other fields are kept as they are. Numbers and defaults are those of
https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

UNKNOWN, CONTROL = 2, 3  # values of a piece's `type`

_FILE = """
name: "sentence_piece_model.proto" package: "bert_jax" syntax: "proto2"
message_type {
  name: "Piece"
  field { name: "piece" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "type" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "1" }
}
message_type {
  name: "Normalizer"
  field { name: "add_dummy_prefix" number: 3 label: LABEL_OPTIONAL type: TYPE_BOOL default_value: "true" }
}
message_type {
  name: "Model"
  field { name: "pieces" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".bert_jax.Piece" }
  field { name: "normalizer_spec" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".bert_jax.Normalizer" }
}
"""


def _message() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_FILE, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bert_jax.Model"))


_Model = _message()


def parse_model(model: bytes) -> Any:
    """The message: `pieces`, each with `piece` and `type`, and `normalizer_spec.add_dummy_prefix`.

    Protobuf's DecodeError where the bytes are no message.
    """
    return _Model.FromString(model)
