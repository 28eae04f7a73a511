"""The tasks of ``torch_finetuning``: texts by our readers -> features by the peer's tokenizer, outputs -> our scores.

A feature is what one call of the tokenizer gives for one sequence (``input_ids``, ``token_type_ids``) with its label;
for multiple choice a list of four; for question answering one for each window of a context.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers

from bert_jax.data.choices import ChoiceExample, read_hellaswag
from bert_jax.data.columns import FORMATS, TaggedSentence, read_columns
from bert_jax.data.glue import glue_task, read_glue
from bert_jax.data.squad import Question, read_questions
from bert_jax.data.text_examples import TextExample
from bert_jax.data.text_files import Problems
from bert_jax.tasks import entities, squad_score
from bert_jax.tasks.scores import scores
from experiments.peers.torch_bert import NOT_PREDICTED

Feature = dict[str, Any]
Batch = dict[str, torch.Tensor]


class PeerTask(ABC):
    """What the families share. ``settings``: see ``torch_finetuning.Settings``."""

    architecture: str

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(settings.encoder, local_files_only=True)
        self._rows: dict[str, list[Any]] = {}
        self._features: dict[str, list[Feature]] = {}

    def rows(self, split: str) -> list[Any]:
        if split not in self._rows:
            self._rows[split] = self.read(split)
        return self._rows[split]

    def features(self, split: str) -> list[Feature]:
        if split not in self._features:
            self._features[split] = self.tokenize(split)
        return self._features[split]

    def examples(self, split: str) -> int:
        return len(self.rows(split))

    def model(self) -> Any:
        """The encoder of the directory with a fresh head."""
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        return getattr(transformers, self.architecture).from_pretrained(
            self.settings.encoder, local_files_only=True, dtype=torch.float32, **self.head()
        )

    def head(self) -> dict[str, Any]:
        return {}

    @abstractmethod
    def read(self, split: str) -> list[Any]: ...

    @abstractmethod
    def tokenize(self, split: str, rows: int | None = None) -> list[Feature]: ...

    def collate(self, features: Sequence[Feature], length: int | None, labelled: bool) -> Batch:
        batch = padded(features, length, self.tokenizer.pad_token_id)
        if labelled:
            batch["labels"] = torch.tensor([feature["label"] for feature in features])
        return batch

    def outputs(self, output: Any, features: Sequence[Feature]) -> list[np.ndarray]:
        return list(output.logits.float().cpu().numpy())

    @abstractmethod
    def score(self, outputs: list[np.ndarray]) -> dict[str, float]: ...


def padded(features: Sequence[Feature], length: int | None, pad_id: int) -> Batch:
    """Sequences as rows of equal length: the longest's, or the one given."""
    length = length or max(len(feature["input_ids"]) for feature in features)
    ids = np.full((len(features), length), pad_id, np.int64)
    types, mask = np.zeros_like(ids), np.zeros_like(ids)
    for row, feature in enumerate(features):
        count = len(feature["input_ids"])
        ids[row, :count], types[row, :count], mask[row, :count] = feature["input_ids"], feature["token_type_ids"], 1
    arrays = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def as_features(encoding: Any, labels: Sequence[Any]) -> list[Feature]:
    columns = zip(encoding["input_ids"], encoding["token_type_ids"], labels, strict=True)
    return [{"input_ids": ids, "token_type_ids": types, "label": label} for ids, types, label in columns]


class Classification(PeerTask):
    """A task of GLUE; ``files["data_dir"]`` holds its official files."""

    architecture = "BertForSequenceClassification"

    @cached_property
    def glue(self) -> Any:
        return glue_task(self.settings.task)

    def head(self) -> dict[str, Any]:
        if self.glue.labels is None:
            return {"num_labels": 1, "problem_type": "regression"}
        return {"num_labels": len(self.glue.labels)}

    def read(self, split: str) -> list[TextExample]:
        return read_glue(self.glue, self.settings.files["data_dir"], split, Problems())

    def label(self, row: TextExample) -> Any:
        return float(row.label or 0) if self.glue.labels is None else self.glue.labels.index(row.label)

    def tokenize(self, split: str, rows: int | None = None) -> list[Feature]:
        chosen: list[TextExample] = self.rows(split)[:rows]
        pairs = [example.text_b for example in chosen] if chosen[0].text_b is not None else None
        encoding = self.tokenizer(
            [example.text_a for example in chosen],
            pairs,
            truncation=True,
            padding=False,
            max_length=self.settings.max_seq_length,
        )
        return as_features(encoding, [self.label(example) for example in chosen])

    def score(self, outputs: list[np.ndarray]) -> dict[str, float]:
        logits, labels = np.stack(outputs), np.asarray([self.label(row) for row in self.rows("dev")])
        predictions = logits[:, 0] if self.glue.labels is None else logits.argmax(-1)
        return scores(self.glue.metrics, predictions, labels)


class Choice(PeerTask):
    """HellaSwag-style files, ``files`` names one for each split."""

    architecture = "BertForMultipleChoice"

    def read(self, split: str) -> list[ChoiceExample]:
        return read_hellaswag(self.settings.files[split], Problems())

    def tokenize(self, split: str, rows: int | None = None) -> list[Feature]:
        chosen: list[ChoiceExample] = self.rows(split)[:rows]
        encoding = self.tokenizer(
            [example.context for example in chosen for _ in example.endings],
            [ending for example in chosen for ending in example.endings],
            truncation=True,
            padding=False,
            max_length=self.settings.max_seq_length,
        )
        flat = as_features(encoding, [None] * len(encoding["input_ids"]))
        return [{"choices": flat[4 * i : 4 * i + 4], "label": example.label} for i, example in enumerate(chosen)]

    def collate(self, features: Sequence[Feature], length: int | None, labelled: bool) -> Batch:
        flat = [choice for feature in features for choice in feature["choices"]]
        batch = padded(flat, length, self.tokenizer.pad_token_id)
        batch = {name: values.view(len(features), 4, -1) for name, values in batch.items()}
        if labelled:
            batch["labels"] = torch.tensor([feature["label"] for feature in features])
        return batch

    def score(self, outputs: list[np.ndarray]) -> dict[str, float]:
        labels = np.asarray([row.label for row in self.rows("dev")])
        return scores(("accuracy",), np.stack(outputs).argmax(-1), labels)


class Tagging(PeerTask):
    """Column files in the format ``task``; the first piece of a word carries its tag, words cut off get "O"."""

    architecture = "BertForTokenClassification"

    @cached_property
    def tags(self) -> list[str]:
        return sorted({tag for row in self.rows("train") for tag in row.tags})

    def head(self) -> dict[str, Any]:
        return {"num_labels": len(self.tags)}

    def read(self, split: str) -> list[TaggedSentence]:
        return read_columns(self.settings.files[split], FORMATS[self.settings.task])

    def tokenize(self, split: str, rows: int | None = None) -> list[Feature]:
        chosen: list[TaggedSentence] = self.rows(split)[:rows]
        encoding = self.tokenizer(
            [list(row.words) for row in chosen],
            is_split_into_words=True,
            truncation=True,
            padding=False,
            max_length=self.settings.max_seq_length,
        )
        features = as_features(encoding, [None] * len(chosen))
        for i, feature in enumerate(features):
            words = encoding.word_ids(i)
            feature["words"] = words
            feature["label"] = [
                NOT_PREDICTED if word is None or word == before else self._tag_id(chosen[i], word)
                for before, word in zip([None, *words], words, strict=False)
            ]
        return features

    def _tag_id(self, row: TaggedSentence, word: int) -> int:
        tag = row.tags[word] if row.tags else "O"
        return self.tags.index(tag) if tag in self.tags else NOT_PREDICTED

    def collate(self, features: Sequence[Feature], length: int | None, labelled: bool) -> Batch:
        batch = padded(features, length, self.tokenizer.pad_token_id)
        if labelled:
            labels = np.full(batch["input_ids"].shape, NOT_PREDICTED, np.int64)
            for row, feature in enumerate(features):
                labels[row, : len(feature["label"])] = feature["label"]
            batch["labels"] = torch.from_numpy(labels)
        return batch

    def outputs(self, output: Any, features: Sequence[Feature]) -> list[np.ndarray]:
        logits = output.logits.float().cpu().numpy()
        return [logits[row, : len(feature["input_ids"])] for row, feature in enumerate(features)]

    def score(self, outputs: list[np.ndarray]) -> dict[str, float]:
        predicted = []
        for row, feature, logits in zip(self.rows("dev"), self.features("dev"), outputs, strict=True):
            tags = ["O"] * len(row.words)
            for column in range(len(logits) - 1, -1, -1):  # the first piece of a word comes last, and counts
                word = feature["words"][column]
                if word is not None:
                    tags[word] = self.tags[int(logits[column].argmax())]
            predicted.append(tags)
        found = entities.score([row.tags for row in self.rows("dev")], predicted)
        return {"f1": found.f1, "precision": found.precision, "recall": found.recall, "accuracy": found.accuracy}


class Answering(PeerTask):
    """SQuAD's layout, answerable questions. ``options``: doc_stride, max_query_length, n_best_size, max_answer_length.

    Windows overlap so that the next one starts ``doc_stride`` tokens later, as the original's; decoding is that of
    transformers' own example: the best sum of logits over windows, cut from the context by offsets.
    """

    architecture = "BertForQuestionAnswering"

    def read(self, split: str) -> list[Question]:
        return read_questions(self.settings.files[split], Problems())

    def tokenize(self, split: str, rows: int | None = None) -> list[Feature]:
        features = []
        for index, question in enumerate(self.rows(split)[:rows]):
            features += self._windows(index, question, split == "train")
        return features

    def _windows(self, index: int, question: Question, training: bool) -> list[Feature]:
        options, length = self.settings.options, self.settings.max_seq_length
        query = self.tokenizer(
            question.question,
            add_special_tokens=False,
            truncation=True,
            padding=False,
            max_length=options["max_query_length"],
            return_offsets_mapping=True,
        )
        text = question.question[: query["offset_mapping"][-1][1]] if query["offset_mapping"] else question.question
        room = length - len(query["input_ids"]) - 3
        encoding = self.tokenizer(
            text,
            question.context,
            truncation="only_second",
            padding=False,
            max_length=length,
            stride=max(0, room - options["doc_stride"]),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        windows = as_features(encoding, [None] * len(encoding["input_ids"]))
        span = next((answer.span for answer in question.answers if answer.span), None)
        if training and span is None:
            return []
        for number, window in enumerate(windows):
            of_context = [kind == 1 for kind in encoding.sequence_ids(number)]
            offsets = encoding["offset_mapping"][number]
            window["offsets"] = [place if inside else None for place, inside in zip(offsets, of_context, strict=True)]
            window["question"] = index
            window["label"] = _target(window["offsets"], span)
        return windows

    def collate(self, features: Sequence[Feature], length: int | None, labelled: bool) -> Batch:
        batch = padded(features, length, self.tokenizer.pad_token_id)
        if labelled:
            targets = torch.tensor([feature["label"] for feature in features])
            batch |= {"start_positions": targets[:, 0], "end_positions": targets[:, 1]}
        return batch

    def outputs(self, output: Any, features: Sequence[Feature]) -> list[np.ndarray]:
        logits = torch.stack([output.start_logits, output.end_logits], -1).float().cpu().numpy()
        return [logits[row, : len(feature["input_ids"])] for row, feature in enumerate(features)]

    def score(self, outputs: list[np.ndarray]) -> dict[str, float]:
        best: dict[int, tuple[float, str]] = {}
        for feature, logits in zip(self.features("dev"), outputs, strict=True):
            index = feature["question"]
            context = self.rows("dev")[index].context
            found = _best_span(logits, feature["offsets"], self.settings.options)
            if found and found[0] > best.get(index, (-np.inf, ""))[0]:
                best[index] = found[0], context[found[1] : found[2]]
        questions = self.rows("dev")
        predictions = {question.id: best.get(i, (0.0, ""))[1] for i, question in enumerate(questions)}
        return {name: float(value) for name, value in squad_score.score(questions, predictions).items()}


def _target(offsets: list[tuple[int, int] | None], span: tuple[int, int] | None) -> tuple[int, int]:
    """The columns of the answer's first and last token; (0, 0) where the window does not hold all of it."""
    if span is None:
        return 0, 0
    context = [(column, place) for column, place in enumerate(offsets) if place is not None]
    if not context or context[0][1][0] > span[0] or context[-1][1][1] < span[1]:
        return 0, 0
    inside = [column for column, (start, end) in context if start < span[1] and end > span[0]]
    return (inside[0], inside[-1]) if inside else (0, 0)


def _best_span(
    logits: np.ndarray, offsets: list[tuple[int, int] | None], options: dict[str, Any]
) -> tuple[float, int, int] | None:
    """(score, start, end in characters) among the best starts and ends."""
    starts, ends = (np.argsort(-logits[:, side])[: options["n_best_size"]] for side in (0, 1))
    best = None
    for start in starts.tolist():
        for end in ends.tolist():
            first, last = offsets[start], offsets[end]
            if first is None or last is None or not 0 <= end - start < options["max_answer_length"]:
                continue
            score = float(logits[start, 0] + logits[end, 1])
            if best is None or score > best[0]:
                best = score, first[0], last[1]
    return best


FAMILIES: dict[str, Callable[[Any], PeerTask]] = {
    "glue": Classification,
    "choice": Choice,
    "tagging": Tagging,
    "squad": Answering,
}
