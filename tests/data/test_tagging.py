"""Windows of tagged sentences: hand cases, documents, long sentences, characters, and every word of real files."""

import random
from dataclasses import replace

import numpy as np
import pytest

from bert_jax.data.columns import FORMATS, TaggedSentence, read_columns
from bert_jax.data.tagging import TaggedData, decode, label_inventory, tag_windows
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.data.wordpiece import WordPiece
from bert_jax.tasks.entities import score

LETTERS = [*"abcdefghij", *(f"##{letter}" for letter in "abcdefghij")]
TOKENIZER = WordPiece(
    [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "john",
        "johan",
        "##son",
        "'",
        "s",
        "house",
        *LETTERS,
        "가나",
        "##다",
    ],
    lowercase=True,
)
UNK, CLS, SEP = 1, 2, 3
LABELS = ("O", "B-PER", "I-PER")


def sentence(text, tags=None, document=0, spaces=None):
    words = tuple(text.split(" "))
    return TaggedSentence(words, tags and tuple(tags.split()), document, "file", 7, spaces)


def texts(data: TaggedData) -> list[str]:
    return [" ".join(TOKENIZER.pieces[i] for i in window.sequence.ids.tolist()) for window in data.windows]


def gold(data: TaggedData) -> list[list[str]]:
    return decode(data, [window.labels for window in data.windows])


def check(data: TaggedData, sentences, tokenizer) -> None:
    """Every word with pieces of its own is in exactly one window, at its first piece; gold labels come back."""
    found = np.sort(np.concatenate([window.words for window in data.windows]))
    own = np.flatnonzero(data.sources == np.arange(len(data.sources)))
    assert found.tolist() == own.tolist()
    ids, lengths = tokenizer.encode_batch([word for s in sentences for word in s.words])
    first = np.append(ids, tokenizer.unk_id)[np.where(lengths > 0, np.cumsum(lengths) - lengths, -1)]
    for window in data.windows:
        assert (np.diff(window.words) > 0).all() and (np.diff(window.label_columns) > 0).all()
        assert not window.sequence.segment_ids.any()
        assert (window.sequence.ids[0], window.sequence.ids[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
        if not data.counts.inside_pieces:
            assert (window.sequence.ids[window.label_columns] == first[window.words]).all()
    if not data.counts.inexact:
        assert gold(data) == [list(s.tags) for s in sentences]


def test_first_pieces_carry_the_label():
    # The README's example: map [1, 2, 4, 6].
    data = tag_windows([sentence("John Johanson 's house", "B-PER I-PER O O")], TOKENIZER, LABELS)
    assert texts(data) == ["[CLS] john johan ##son ' s house [SEP]"]
    (window,) = data.windows
    assert window.label_columns.tolist() == [1, 2, 4, 6]
    assert window.labels.tolist() == [1, 2, 0, 0]
    assert window.words.tolist() == [0, 1, 2, 3]
    assert window.sequence.segment_ids.tolist() == [0] * 8


def test_a_word_without_pieces_gets_unk():
    sentences = [sentence("\u200e a \u200e \u200e", "B-PER I-PER O B-PER"), sentence("\u200e", "O"), sentence("b", "O")]
    data = tag_windows(sentences, TOKENIZER, LABELS)
    assert texts(data) == ["[CLS] [UNK] a [UNK] [UNK] [SEP]", "[CLS] [UNK] [SEP]", "[CLS] b [SEP]"]
    assert data.counts.without_pieces == 4
    check(data, sentences, TOKENIZER)


def test_labels_are_found_with_o_first():
    assert label_inventory([sentence("a a", "I-PER B-PER"), sentence("a", "O"), sentence("a")]) == (
        "O",
        "B-PER",
        "I-PER",
    )
    with pytest.raises(ValueError, match="no tagged word"):
        label_inventory([sentence("a")])


def test_an_unseen_label_is_an_error_or_counted_and_wrong():
    sentences = [sentence("a b c", "O B-LOC I-PER"), sentence("a", "B-ORG")]
    with pytest.raises(ValueError, match=r"file:7: tag 'B-LOC' of word 2 \('b'\).*allow_unseen"):
        tag_windows(sentences, TOKENIZER, LABELS)
    data = tag_windows(sentences, TOKENIZER, LABELS, allow_unseen=True)
    assert data.counts.unseen == 2
    assert [window.labels.tolist() for window in data.windows] == [[0, -1, 2], [-1]]
    found = decode(data, [np.array([0, 0, 2]), np.array([0])])
    result = score([s.tags for s in sentences], found)
    assert (result.accuracy, result.total.gold, result.total.correct) == (50, 3, 1)
    with pytest.raises(ValueError, match="2 words without a label"):
        gold(data)


def test_text_without_tags_is_predicted():
    data = tag_windows([sentence("a b"), sentence("c")], TOKENIZER, LABELS)
    assert [window.labels.tolist() for window in data.windows] == [[-1, -1], [-1]]
    logits = [np.array([[0.0, 1, 0], [0, 0, 1]]), np.array([[5.0, 1, 0]])]
    assert decode(data, logits) == [["B-PER", "I-PER"], ["O"]]


def test_a_sentence_longer_than_a_window():
    text = "a b c d e f g h i j"
    tags = "O B-PER I-PER O O B-PER I-PER I-PER O O"
    data = tag_windows([sentence(text, tags), sentence("a", "O")], TOKENIZER, LABELS, max_length=6, stride=2)
    assert texts(data) == [f"[CLS] {part} [SEP]" for part in ("a b c d", "c d e f", "e f g h", "g h i j", "a")]
    # c has 1 word left of it in the first window, none in the second; d has 0 against 1.
    assert [window.words.tolist() for window in data.windows] == [[0, 1, 2], [3, 4], [5, 6], [7, 8, 9], [10]]
    assert data.windows[1].label_columns.tolist() == [2, 3]
    assert (data.counts.split_sentences, data.counts.sentences, data.counts.words) == (1, 2, 11)
    check(data, [sentence(text, tags), sentence("a", "O")], TOKENIZER)


def test_the_last_window_is_full_too():
    data = tag_windows([sentence("a b c d e")], TOKENIZER, LABELS, max_length=6, stride=3)
    assert texts(data) == ["[CLS] a b c d [SEP]", "[CLS] b c d e [SEP]"]


def test_a_word_of_more_pieces_than_a_window():
    sentences = [sentence("a " + "abcdefghij" * 3 + " b", "O B-PER O")]
    data = tag_windows(sentences, TOKENIZER, LABELS, max_length=8, stride=3)
    assert [w.words.tolist() for w in data.windows] == [[0, 1], [2]]  # those between predict nothing, so are left out
    check(data, sentences, TOKENIZER)


def test_document_context_keeps_documents_apart_and_sentences_whole():
    sentences = [sentence("a a a", "O O O"), sentence("b b", "O O"), sentence("c c c", "O O O"), sentence("d", "O")]
    sentences += [sentence("e e", "O B-PER", document=1), sentence("f", "O", document=1)]
    whole = tag_windows(sentences, TOKENIZER, LABELS, context="document")
    assert texts(whole) == ["[CLS] a a a b b c c c d [SEP]", "[CLS] e e f [SEP]"]
    data = tag_windows(sentences, TOKENIZER, LABELS, context="document", max_length=8, stride=2)
    assert texts(data) == [
        "[CLS] a a a b b [SEP]",
        "[CLS] b b c c c d [SEP]",
        "[CLS] e e f [SEP]",
    ]
    # The first b has 1 on its right in the first window, 0 on its left in the second.
    assert [window.words.tolist() for window in data.windows] == [[0, 1, 2, 3], [4, 5, 6, 7, 8], [9, 10, 11]]
    check(data, sentences, TOKENIZER)
    alone = tag_windows(sentences, TOKENIZER, LABELS)
    assert len(alone.windows) == 6
    assert gold(alone) == gold(data) == gold(whole)


def best_context(data: TaggedData, number_of_words: int) -> list[int]:
    """The smaller of the pieces left and right of each word where it is predicted."""
    context = [0] * number_of_words
    for window in data.windows:
        for word, column in zip(window.words.tolist(), window.label_columns.tolist(), strict=True):
            context[word] = min(column - 1, len(window.sequence.ids) - 2 - column)
    return context


@pytest.mark.parametrize("context", ["sentence", "document"])
def test_random_documents(context):
    rng = random.Random(0)
    for round_ in range(30):
        lengths = [rng.choice([1, 2, 5, 9, 40]) for _ in range(12)]
        sentences = [
            sentence(" ".join("".join(rng.choices("abcdefghij\u200e", k=rng.choice([1, 1, 2, 6]))) for _ in range(n)))
            for n in lengths
        ]
        sentences = [
            TaggedSentence(s.words, tuple(rng.choice(LABELS) for _ in s.words), i // 5) for i, s in enumerate(sentences)
        ]
        max_length, stride = rng.randint(3, 60), rng.randint(1, 40)
        settings = {"max_length": max_length, "context": context}
        data = tag_windows(sentences, TOKENIZER, LABELS, stride=stride, **settings)
        assert max(len(window.sequence.ids) for window in data.windows) <= max_length
        check(data, sentences, TOKENIZER)
        # A window at every place: no word has less context than with any stride.
        most = tag_windows(sentences, TOKENIZER, LABELS, stride=1, **settings)
        pairs = zip(best_context(most, sum(lengths)), best_context(data, sum(lengths)), strict=True)
        assert all(a >= b for a, b in pairs), round_


def test_600_pieces(shared_data):
    tokenizer = load_tokenizer(shared_data / "vocab" / "bert-base-uncased-vocab.txt")
    words = ["the"] * 599 + ["Obama"]
    sentences = [TaggedSentence(tuple(words), ("O",) * 599 + ("B-PER",))]
    data = tag_windows(sentences, tokenizer, LABELS)
    assert [len(window.sequence.ids) for window in data.windows] == [512, 512]
    assert min(best_context(data, 600)[300:400]) > 190
    check(data, sentences, tokenizer)


def test_empty_sentences_and_no_sentence():
    empty = TaggedSentence((), ())
    for context in ("sentence", "document"):
        data = tag_windows([empty, sentence("a", "O"), empty], TOKENIZER, LABELS, context=context)
        assert gold(data) == [[], ["O"], []]
        assert gold(tag_windows([], TOKENIZER, LABELS, context=context)) == []
        assert gold(tag_windows([empty], TOKENIZER, LABELS, context=context)) == [[]]


def test_characters_share_pieces():
    # 가나다 x: pieces 가나 ##다, then a chunk that is [UNK] whole, of which each character is looked up by itself.
    spaces = (True, False, False, True, False, False)
    joined = sentence("가 나 다 a 한 \u200e", "B-PER I-PER O B-PER I-PER O", spaces=spaces)
    cased = WordPiece(TOKENIZER.pieces, lowercase=False)
    data = tag_windows([joined], cased, LABELS)
    assert texts(data) == ["[CLS] 가나 ##다 a [UNK] [UNK] [SEP]"]
    assert data.windows[0].words.tolist() == [0, 2, 3, 4, 5]
    assert data.sources.tolist() == [0, 0, 2, 3, 4, 5]
    assert gold(data) == [["B-PER", "I-PER", "O", "B-PER", "I-PER", "O"]]
    assert (data.counts.inside_pieces, data.counts.inexact) == (1, 0)
    crossed = tag_windows([sentence("가 나", "O B-PER", spaces=(True, False))], cased, LABELS)
    assert gold(crossed) == [["O", "O"]]
    assert (crossed.counts.inside_pieces, crossed.counts.inexact) == (1, 1)
    assert crossed.counts.places == {"inexact": "file:7"}


def test_characters_by_themselves():
    cased = WordPiece([*TOKENIZER.pieces, "가", "##나"], lowercase=False)
    joined = sentence("가 나 다 a 한 \u200e b", "O B-PER O B-PER I-PER O O", spaces=(True, False) * 3 + (False,))
    data = tag_windows([joined], cased, LABELS, join_words=False)
    assert " ".join(cased.pieces[i] for i in data.windows[0].sequence.ids) == (
        "[CLS] 가 ##나 [UNK] ##a [UNK] [UNK] ##b [SEP]"
    )
    assert (data.counts.inside_pieces, data.counts.without_pieces) == (0, 1)
    assert gold(data) == [["O", "B-PER", "O", "B-PER", "I-PER", "O", "O"]]
    cased = WordPiece([*TOKENIZER.pieces, "가"], lowercase=False)
    unknown = tag_windows([joined], cased, LABELS, join_words=False)
    assert cased.pieces[unknown.windows[0].sequence.ids[2]] == "[UNK]"


def test_predictions_that_do_not_fit_are_refused():
    data = tag_windows([sentence("a b", "O O"), sentence("c", "O")], TOKENIZER, LABELS)
    with pytest.raises(ValueError, match="window 0 has 2 words but 1 predictions"):
        decode(data, [np.array([0]), np.array([0])])
    with pytest.raises(ValueError, match="ids from 0 to 2"):
        decode(data, [np.array([0, 3]), np.array([0])])
    with pytest.raises(ValueError, match="2 windows but predictions for 1"):
        decode(data, [np.array([0, 0])])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": "page"}, "context='page' is not one of"),
        ({"max_length": 2}, "max_length=2 leaves no room"),
        ({"stride": 0}, "stride=0"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        tag_windows([sentence("a", "O")], TOKENIZER, LABELS, **settings)


@pytest.mark.parametrize(
    ("name", "columns", "vocabulary"),
    [
        ("ner/wnut17/emerging.test.annotated", "wnut17", "uncased"),
        ("ner/germeval2014/NER-de-dev.tsv", "germeval2014", "chinese"),
        ("korean/klue_ner/klue-ner-v1.1_dev.tsv", "klue_ner", "chinese"),
    ],
)
@pytest.mark.parametrize(("context", "max_length"), [("sentence", 64), ("document", 128)])
def test_real_files(shared_data, name, columns, vocabulary, context, max_length):
    tokenizer = load_tokenizer(shared_data / "vocab" / f"bert-base-{vocabulary}-vocab.txt", lowercase=True)
    if columns == "klue_ner":
        tokenizer = WordPiece(tokenizer.pieces, lowercase=False)
    # Each of these sentences is a document by itself; for document context a file is taken for one.
    layout = replace(FORMATS[columns], documents="file") if context == "document" else FORMATS[columns]
    sentences = read_columns(shared_data / name, layout)
    sentences = sentences[:300] if columns == "klue_ner" else sentences
    data = tag_windows(sentences, tokenizer, label_inventory(sentences), max_length=max_length, context=context)
    check(data, sentences, tokenizer)
    assert data.counts.unseen == data.counts.inexact == 0
    assert (len(data.windows) >= len(sentences)) == (context == "sentence")
    assert score([s.tags or () for s in sentences], gold(data)).f1 == 100
