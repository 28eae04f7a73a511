"""Multiple choice: the layouts of SWAG and HellaSwag, a sequence for each ending."""

import bz2
import collections
import json

import pytest

from bert_jax.data.choices import ChoiceExample, choice_ids, read_hellaswag, read_swag, to_choice_sequences
from bert_jax.data.sequences import pair, truncate_pair
from bert_jax.data.tables import EMPTY_TEXT
from bert_jax.data.text_examples import TRUNCATED
from bert_jax.data.text_files import Problems
from bert_jax.data.wordpiece import WordPiece

WORDS = [chr(97 + i) for i in range(26)]
TOKENIZER = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True)

HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
ROW = '7,anet,3416,"A ""b"", c. Then she","A ""b"", c.",Then she,gold,runs.,sits.,"x, y.",eats.'


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def test_swag(tmp_path):
    path = write(tmp_path / "val.csv", f"{HEADER},label\n{ROW},2\n")
    endings = ("runs.", "sits.", "x, y.", "eats.")
    assert read_swag(path, Problems()) == [ChoiceExample('A "b", c. Then she', endings, 2, "3416")]
    (other,) = read_swag(path, Problems(), start="ending")
    assert other.context == 'A "b", c.' and other.endings == tuple(f"Then she {ending}" for ending in endings)
    test = write(tmp_path / "test.csv", f"{HEADER}\n{ROW}\n")
    assert read_swag(test, Problems(), labelled=False)[0].label is None
    with pytest.raises(ValueError, match="has no column 'label'"):
        read_swag(test, Problems())
    # With an ending too few the label stands in the place of the last.
    write(path, f"{HEADER},label\n{ROW.removesuffix(',eats.')},2\n")
    with pytest.raises(ValueError, match=r"val.csv:2: the row has 11 of 12 cells"):
        read_swag(path, Problems(), labelled=False)


def test_hellaswag_of_both_forms(tmp_path):
    item = {"ind": 24, "activity_label": "Roof", "ctx_a": "A man.", "ctx_b": "he", "ctx": "A man. he", "label": 3}
    item["endings"] = ["runs.", "sits.", "", "eats."]
    path = write(tmp_path / "h.jsonl", json.dumps(item) + "\n")
    problems = Problems()
    expected = ChoiceExample("Roof: A man. he", tuple(item["endings"]), 3, "24")
    assert read_hellaswag(path, problems) == [expected]
    assert problems.as_dict() == {EMPTY_TEXT: {"count": 1, "first": f"{path}:1"}}
    (other,) = read_hellaswag(path, Problems(), start="ending")
    assert other.context == "Roof: A man." and other.endings == ("he runs.", "he sits.", "he", "he eats.")
    text = "\n".join(["Roof: A man. he", "3", *item["endings"]]) + "\n"
    packed = write(tmp_path / "h.txt.bz2", bz2.compress(text.encode()))
    (same,) = read_hellaswag(packed, Problems())
    assert (same.context, same.endings, same.label) == (expected.context, expected.endings, 3)
    unlabelled = write(tmp_path / "t.jsonl", json.dumps({**item, "label": ""}))
    assert read_hellaswag(unlabelled, Problems())[0].label is None


def test_real_hellaswag(shared_data):
    problems = Problems()
    examples = read_hellaswag(shared_data / "hellaswag" / "hellaswag_val_full.txt.bz2", problems)
    assert len(examples) == 10_042 and problems.counts == {}
    assert examples[0].context == "Roof shingle removal: A man is sitting on a roof. he"
    assert examples[0].endings[3] == "starts pulling up roofing on a roof." and examples[0].label == 3
    # The official file has about as many items for each place.
    assert min(collections.Counter(choice_ids(examples).tolist()).values()) > 2400


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", f"{HEADER},label\n{ROW},4\n", r"a.csv:2: label '4' is not one of 0 to 3"),
        ("a.csv", f"{HEADER},label\n7,anet,3416\n", r"a.csv:2: the row has 1 of 9 cells"),
        ("a.csv", f"{HEADER},label\n", "has no rows"),
        ("a.txt", "ctx\n0\na\nb\nc\nd\nctx\n", r"has 7 lines, not six for each item .* line 7"),
        ("a.txt", "ctx\nx\na\nb\nc\nd\n", r"a.txt:2: label 'x' is not one of 0 to 3"),
        ("a.jsonl", '{"ctx": "x"}', r"a.jsonl:1: 'endings' is no list"),
        ("a.jsonl", '{"endings": ["a", "b"]}', r"a.jsonl:1: no text in 'ctx'"),
        ("a.jsonl", '{"ctx": "x", "endings": ["a", "b"], "label": 2}', r"a.jsonl:1: label '2' is not one of 0 to 1"),
    ],
)
def test_errors(tmp_path, name, text, message):
    read = read_swag if name.endswith("csv") else read_hellaswag
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path / name, text), Problems())


def test_start_is_checked(tmp_path):
    path = write(tmp_path / "a.txt", "ctx\n0\na\nb\nc\nd\n")
    with pytest.raises(ValueError, match="the text form has no started phrase apart"):
        read_hellaswag(path, Problems(), start="ending")


def test_a_sequence_for_each_ending():
    two = ChoiceExample("a b c d", ("e", "f g h"), 1)
    three = ChoiceExample("a", ("b", "c", "d"), source="x.csv", line=4)
    problems = Problems()
    sequences = to_choice_sequences([two, three], TOKENIZER, 8, problems)
    assert [len(group) for group in sequences] == [2, 3]
    for example, group in ((two, sequences[0]), (three, sequences[1])):
        for ending, sequence in zip(example.endings, group, strict=True):
            a, b = truncate_pair(TOKENIZER.encode_ids(example.context), TOKENIZER.encode_ids(ending), 5)
            expected = pair(a, b, TOKENIZER)
            assert sequence.ids.tolist() == expected.ids.tolist()
            assert sequence.segment_ids.tolist() == expected.segment_ids.tolist()
    assert problems.counts == {TRUNCATED: 1}
    assert choice_ids([two]).tolist() == [1]
    with pytest.raises(ValueError, match=r"x.csv:4: no label"):
        choice_ids([three])
