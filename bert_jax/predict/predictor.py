"""``load`` and the ``Predictor``: one method for each thing that a model can be asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from jaxtyping import Float

from bert_jax.data.object_store import is_url
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer
from bert_jax.interop.layouts import OF_LABELS, TASK_HEADS
from bert_jax.interop.translate import num_parameters
from bert_jax.model.config import BertConfig
from bert_jax.predict import answering, classification, embedding, tagging
from bert_jax.predict.attention_map import AttentionMap, attention_map
from bert_jax.predict.engine import Engine
from bert_jax.predict.filling import Filling, fill_masks, offered_pieces
from bert_jax.predict.heads import HeadLogits, heads_of, require, require_encoder
from bert_jax.predict.records import Choice, Tagging
from bert_jax.predict.texts import Limit, Text, Texts, as_list, as_strings, one_or_many, read_texts, shortened, whole
from bert_jax.training.source import RUN, open_source

Result = TypeVar("Result")


def load(
    directory: str | Path, *, step: int | None = None, task_head: str | None = None, strict: bool = True
) -> Predictor:
    """The model in a directory, ready to use on this process's first device.

    Args:
        directory: the workdir of a run, whatever mesh wrote its checkpoint; a Hugging Face or a Google directory; or
            the URL of one.
        step: which checkpoint of a run; None takes the newest.
        task_head: what the output layer of a foreign model is, where its name does not tell: "classifier",
            "regressor", "tagging_head", "choice_head" or "qa_head".
        strict: whether tensors that have no place in our model are an error.

    Raises:
        FileNotFoundError: no such directory, or no model or finished checkpoint in it.
        ValueError: a model that cannot be read, or a tokenizer that is not its own.
    """
    if not is_url(directory) and not Path(directory).is_dir():
        raise FileNotFoundError(
            f"no directory {directory}; give the --workdir of a training run, a Hugging Face or a Google directory"
        )
    source = open_source(directory, step)
    tokenizer = load_tokenizer(source.tokenizer)
    model = source.read(step, task_head=task_head, strict=strict)
    return Predictor(
        source.config,
        tokenizer,
        model.params,
        name=str(directory),
        step=model.meta["step"],
        labels=model.labels,
        run=source.run if source.trained_here else {},
        figures=model.meta.get("figures") or {},
        kind=source.kind,
    )


class Predictor:
    """A trained model with its tokenizer.

    Every method takes one text and gives one result, or a list and gives a list in its order. A pair of texts is a
    tuple ``(a, b)``. [MASK] and other special tokens count as such where a text goes to the encoder alone
    (``fill_mask``, ``embed``, ``attention``, ``next_sentence``); the tasks read them as the letters they are, as in
    training. Texts are packed into batches of a few shapes, each compiled when it is first needed.

    Attributes: ``config``, ``tokenizer``, ``params`` (the nested dict of arrays), ``name``, ``kind`` (whose directory
    it came from), ``step``, ``labels`` (names of the classes or tags), ``run`` (the config it was trained with),
    ``num_offered`` (how many pieces can fill a mask), ``num_compiled`` (programs compiled so far).
    """

    def __init__(
        self,
        config: BertConfig,
        tokenizer: Tokenizer,
        params: Any,
        *,
        name: str,
        step: int,
        labels: Sequence[str] | None = None,
        run: Mapping[str, Any] | None = None,
        figures: Mapping[str, float] | None = None,
        kind: str = RUN,
    ) -> None:
        if config.vocab_size < tokenizer.vocab_size:  # some publish tables with rows to spare
            raise ValueError(
                f"{name}: the model has {config.vocab_size} pieces and its tokenizer {tokenizer.vocab_size};"
                " restore the tokenizer it was trained with"
            )
        self._engine = Engine(config, tokenizer, params, name)
        self.config, self.tokenizer, self.params = config, tokenizer, self._engine.params
        self.name, self.kind, self.step = name, kind, step
        self.run, self._figures = dict(run or {}), dict(figures or {})
        self._offered = offered_pieces(tokenizer, config.padded_vocab_size)
        self.num_offered = int(self._offered.sum())
        self.labels = self._labels(labels)

    def __repr__(self) -> str:
        config, tokenizer = self.config, self.tokenizer
        kinds = {"wordpiece": "WordPiece", "sentencepiece": "SentencePiece", "byte_bpe": "byte-level BPE"}
        kind = kinds.get(tokenizer.kind, tokenizer.kind)
        origin = f"at step {self.step:,}" if self.kind == RUN else f"from {self.kind}"
        heads = ", ".join(self._described(head) for head in heads_of(self.params) if head != "pooler")
        return (
            f"<Predictor {self.name!r} {origin}: {config.num_hidden_layers} layers x"
            f" {config.hidden_size}, {self.num_parameters:,} parameters, {config.vocab_size:,} {kind} pieces"
            f" ({'uncased' if tokenizer.lowercase else 'cased'}), {heads or 'no head'}>"
        )

    @property
    def num_parameters(self) -> int:
        """Of encoder and heads, without the rows that only pad the vocabulary."""
        return num_parameters(self.config, self.params)

    @property
    def num_compiled(self) -> int:
        """Programs compiled so far; a handful serves any input."""
        return self._engine.num_compiled

    @overload
    def fill_mask(self, text: str, top_k: int = 5) -> list[Filling]: ...
    @overload
    def fill_mask(self, text: Iterable[str], top_k: int = 5) -> list[list[Filling]]: ...
    def fill_mask(self, text: str | Iterable[str], top_k: int = 5) -> list[Filling] | list[list[Filling]]:
        """The likeliest pieces for every [MASK]: ``[(piece, probability), ...]`` each, likeliest first.

        One text gives a list with an entry for each of its masks, a list of texts a list of such lists. The
        probability is over the whole vocabulary; special tokens and [unused…] are left out of the answer. Several
        masks of one text are filled each for itself. A one-sided model reads the context on its side only.

        Raises:
            ValueError: a text without [MASK] or longer than the model, ``top_k`` out of range, a model without
                masked-LM head.
        """
        require(self._engine, "mlm_head")
        top_k = whole(top_k, "top_k")
        if not 1 <= top_k <= self.num_offered:
            raise ValueError(f"top_k={top_k} must be between 1 and the {self.num_offered:,} pieces to offer")
        texts, alone = one_or_many(text)
        return _one(fill_masks(self._engine, texts, self._offered, top_k, self._longest), alone)

    def classify(self, texts: Texts, *, truncate: bool = False, stride: int | None = None) -> Any:
        """A ``Classification`` of each text or pair: the class, and the probabilities of all; of a regressor a float.

        Args:
            truncate: cut texts that are too long by the original's rule (from the longer of a pair).
            stride: read them in windows that start so many tokens apart, and average; None: the ``doc_stride`` that the
                model was trained with, if any.

        Raises:
            ValueError: a text that is too long, if nothing says what to do with it; a model without such a head.
        """
        head = require(self._engine, "classifier", "regressor")
        given, alone = one_or_many(texts)
        stride = stride if stride is not None or truncate else self.run.get("doc_stride")
        stride = None if stride is None else whole(stride, "stride")
        remedy = "give truncate=True to cut it, or stride=64 to average over windows that start 64 tokens apart"
        options = {"truncate": truncate, "stride": stride, "special_tokens": False, "remedy": remedy}
        inputs = read_texts(given, self.tokenizer, self._trained, **options)
        if head == "regressor":
            return _one(classification.rate(self._engine, self._head(head), inputs), alone)
        return _one(classification.classify(self._engine, self._head(head), inputs, self.labels or ()), alone)

    def answer(
        self,
        *,
        question: str | Sequence[str],
        context: str | Sequence[str],
        top_k: int = 1,
        unanswerable: bool | None = None,
        truncate: bool = False,
    ) -> Any:
        """The answer to each question, as a span of its context: an ``Answer``, or ``top_k`` of them, best first.

        A context of any length is read in overlapping windows. One question may go with many contexts, and one context
        with many questions; two strings give one result.

        Args:
            unanswerable: whether "" competes, against the threshold that was tuned in training (else 0); None: as the
                model was trained (SQuAD 2.0), and no for models of other programs.
            truncate: cut a question that is longer than the model was trained with.

        Raises:
            ValueError: a question that is too long, unless truncated; ``top_k`` below 1; a model without such a head.
        """
        call = self._head(require(self._engine, "qa_head"))
        top_k = whole(top_k, "top_k")
        if top_k < 1:
            raise ValueError(f"top_k={top_k} must be at least 1")
        rules = answering.answer_rules(self.run, self._figures, self._trained, unanswerable, top_k)
        pairs = answering.paired(question, context)
        found = answering.answer(self._engine, call, pairs, rules, top_k, truncate=truncate)
        results = [own[0] for own in found] if top_k == 1 else found
        return _one(results, isinstance(question, str) and isinstance(context, str))

    @overload
    def tag(self, sentences: str | tuple[str, ...]) -> Tagging: ...
    @overload
    def tag(self, sentences: Iterable[Any]) -> list[Tagging]: ...
    def tag(self, sentences: Any) -> Tagging | list[Tagging]:
        """A tag for every word, and the entities that the tags mark.

        A sentence is a list of words, or a string, which is split at white space (into characters, for a model that
        was trained on those); of a list each item is one. One that is too long is read in overlapping windows.

        Raises:
            ValueError: what is no sentence, a model without such a head.
        """
        call = self._head(require(self._engine, "tagging_head"))
        given, alone = tagging.read_sentences(sentences, characters=tagging.of_characters(self.run))
        return _one(tagging.tag(self._engine, call, given, self.labels or (), self.run, self._trained), alone)

    @overload
    def choose(self, contexts: str, endings: Sequence[str], *, truncate: bool = False) -> Choice: ...
    @overload
    def choose(
        self, contexts: Iterable[str], endings: Iterable[Sequence[str]], *, truncate: bool = False
    ) -> list[Choice]: ...
    def choose(
        self, contexts: str | Iterable[str], endings: Iterable[Any], *, truncate: bool = False
    ) -> Choice | list[Choice]:
        """The likeliest of several endings of each context.

        Args:
            endings: of the one context, or a list of them for each.
            truncate: cut what is too long by the original's rule.

        Raises:
            ValueError: texts that are too long, unless truncated; a context without endings; a model without such a
                head.
        """
        call = self._head(require(self._engine, "choice_head"))
        alone = isinstance(contexts, str)
        given = as_strings(contexts, "context")
        own = [endings] if alone else as_list(endings, "no list; give a list of endings for each context")
        return _one(classification.choose(self._engine, call, given, own, self._trained, truncate=truncate), alone)

    def embed(
        self,
        texts: Texts,
        layers: Sequence[int] = (-1,),
        pooling: str | None = "cls",
        *,
        normalize: bool = False,
        truncate: bool = False,
    ) -> Any:
        """Vectors of texts or pairs, in float32: [n, d], or [d] of one; those of several layers side by side.

        Args:
            layers: -1 is the last, 0 the output of the embeddings, ``num_hidden_layers`` the last as well.
            pooling: "cls" for the first token, "pooler" for what pre-training put on it, "mean" or "max" over all
                tokens; None gives [tokens, d] of each text, [CLS] and [SEP] among them.
            normalize: to length 1.
            truncate: cut texts that are too long.

        Raises:
            ValueError: a text that is too long, unless truncated; layers or a pooling that the model does not have.
        """
        require(self._engine, "pooler") if pooling == "pooler" else require_encoder(self._engine)
        given, alone = one_or_many(texts)
        inputs = read_texts(given, self.tokenizer, self._longest, truncate=truncate)
        return _one(embedding.embed(self._engine, inputs, layers, pooling, normalize=normalize), alone)

    def similarity(
        self, a: Texts, b: Texts | None = None, pooling: str = "mean", *, truncate: bool = False
    ) -> Float[np.ndarray, "n m"]:
        """The cosine of every text of ``a`` with every one of ``b`` (None: with those of ``a``) in the last layer.

        Always a matrix; one text is a list of one.
        """
        vectors = [
            self.embed(one_or_many(given)[0], pooling=pooling, normalize=True, truncate=truncate)
            for given in ((a,) if b is None else (a, b))
        ]
        return vectors[0] @ vectors[-1].T

    @overload
    def next_sentence(self, a: str, b: str, *, truncate: bool = False) -> float: ...
    @overload
    def next_sentence(self, a: Iterable[str], b: Iterable[str], *, truncate: bool = False) -> list[float]: ...
    def next_sentence(
        self, a: str | Iterable[str], b: str | Iterable[str], *, truncate: bool = False
    ) -> float | list[float]:
        """The probability that ``b`` follows ``a`` (after sentence order prediction: that they are in order).

        Raises:
            ValueError: different numbers of texts, a pair that is too long, unless truncated; a model without the head.
        """
        require(self._engine, "nsp_head")
        firsts, seconds = as_strings(a, "a"), as_strings(b, "b")
        if len(firsts) != len(seconds):
            raise ValueError(f"a has {len(firsts)} texts and b {len(seconds)}; give as many")
        pairs = list(zip(firsts, seconds, strict=True))
        inputs = read_texts(pairs, self.tokenizer, self._longest, truncate=truncate)
        return _one(classification.next_sentence(self._engine, inputs), isinstance(a, str) and isinstance(b, str))

    @overload
    def attention(self, texts: Text, *, truncate: bool = False) -> AttentionMap: ...
    @overload
    def attention(self, texts: Iterable[Any], *, truncate: bool = False) -> list[AttentionMap]: ...
    def attention(self, texts: Texts, *, truncate: bool = False) -> AttentionMap | list[AttentionMap]:
        """The attention weights of every layer and head for a text or pair; ``.plot()`` draws them.

        Raises:
            ValueError: a text that is too long, unless truncated.
        """
        require_encoder(self._engine)
        given, alone = one_or_many(texts)
        sequences = read_texts(given, self.tokenizer, self._longest, truncate=truncate).sequences
        return _one([attention_map(self._engine, sequence) for sequence in sequences], alone)

    @property
    def _longest(self) -> Limit:
        return Limit(self.config.max_position_embeddings, "max_position_embeddings")

    @property
    def _trained(self) -> Limit:
        """What a task's head was trained with: longer inputs are cut, or read in windows, as then."""
        phases = self.run.get("phases") or [{}]
        trained = phases[-1].get("max_seq_length") or self.run.get("max_seq_length")
        return Limit(int(trained), "max_seq_length of the run") if trained else self._longest

    def _head(self, name: str) -> HeadLogits:
        outputs = len(self.params[name]["bias"])
        bilstm_size, concatenated = int(self.run.get("bilstm_size") or 0), bool(self.run.get("concatenated"))
        return HeadLogits(self.config, name, outputs, bilstm_size, concatenated)

    def _labels(self, given: Sequence[str] | None) -> tuple[str, ...] | None:
        """Those given, or numbers for a head whose outputs have no names. ValueError: not as many as outputs."""
        head = next((name for name in OF_LABELS if name in self.params), None)
        if head is None:
            return None
        outputs = len(self.params[head]["bias"])
        labels = tuple(map(str, range(outputs) if given is None else given))
        if len(labels) != outputs:
            raise ValueError(f"{self.name} has {len(labels)} labels but its {head} {outputs} outputs; restore them")
        if twice := [label for label, count in Counter(labels).items() if count > 1]:
            raise ValueError(f"{self.name} has the label {shortened(twice[0])} twice; give each output its own")
        return labels

    def _described(self, head: str) -> str:
        if self.labels is None or head not in TASK_HEADS:
            return head
        return f"{head} ({', '.join(self.labels[:8])}{', …' * (len(self.labels) > 8)})"


def _one(results: Any, alone: bool) -> Any:
    """The result itself where one text was given."""
    return results[0] if alone else results
