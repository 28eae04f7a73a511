"""SQuAD 1.1 and 2.0 from TFDS, without TensorFlow."""

from __future__ import annotations

from bert_jax.data.squad import Question, make_question
from bert_jax.data.text_files import Problems
from bert_jax.data.tfds_texts import decoded, open_set

SPLITS = {"train": "train", "dev": "validation"}


def read_squad_tfds(version: str, split: str, problems: Problems, *, allow_download: bool = False) -> list[Question]:
    """The questions of "squad/v1.1" or "squad/v2.0" where TFDS keeps its sets.

    A prepared set is shuffled; questions on one context come together here, so that it is encoded once.

    Where it is not prepared: FileNotFoundError, or with `allow_download` it is downloaded and prepared.
    """
    name = f"tfds:squad/v{version}:{SPLITS[split]}"
    builder, tfds_split = open_set(name, allow_download)
    source = builder.as_data_source(split=tfds_split)
    of_context: dict[str, list[Question]] = {}
    for number in range(len(source)):
        record = source[number]
        place = f"{name}:{number}"
        context = decoded(record["context"], place, problems)
        answers = record["answers"]
        texts = [decoded(text, place, problems) for text in answers["text"]]
        question = make_question(
            decoded(record["id"], place, problems),
            decoded(record["question"], place, problems),
            context,
            zip(texts, map(int, answers["answer_start"]), strict=True),
            is_impossible=bool(record.get("is_impossible", False)),
            title=decoded(record["title"], place, problems),
            place=place,
            problems=problems,
        )
        of_context.setdefault(context, []).append(question)
    return [question for questions in of_context.values() for question in questions]
