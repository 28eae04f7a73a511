"""Reading SQuAD's layout, windows, maximum context and targets, on cases worked out by hand."""

import json

import pytest

from bert_jax.data import squad
from bert_jax.data.squad import (
    WindowSettings,
    make_question,
    make_windows,
    read_questions,
)
from bert_jax.data.text_files import Problems
from bert_jax.data.wordpiece import WordPiece

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = WordPiece([*SPECIALS, *"abcdefghijklmnopqrstuvwxyz", "?"], lowercase=True)
CLS, SEP, A, Q = LETTERS.cls_id, LETTERS.sep_id, 5, 31


def layout(*qas, context="a b c d e f", version="1.1"):
    return {"version": version, "data": [{"title": "T", "paragraphs": [{"context": context, "qas": list(qas)}]}]}


def qa(id: str | int = "1", question="q ?", **fields):
    return {"id": id, "question": question, **fields}


def answer(text, start):
    return {"text": text, "answer_start": start}


def columns(window):
    return window.start_column, window.end_column


def test_questions_of_all_kinds():
    content = layout(
        qa("1", answers=[answer("c d", 4), answer("c", 4)]),
        qa("2", answers=[], is_impossible=True, plausible_answers=[answer("a", 0)]),
        qa("3", answers=[]),
        qa("4"),
        qa(5, is_impossible=False, answers=[answer("a", 0)]),
    )
    problems = Problems()
    first, second, third, fourth, fifth = read_questions(content, problems)
    assert (first.id, first.question, first.context, first.title) == ("1", "q ?", "a b c d e f", "T")
    assert [(a.text, a.span) for a in first.answers] == [("c d", (4, 7)), ("c", (4, 5))]
    assert second.is_impossible and not second.answers
    assert third.is_impossible
    assert not fourth.is_impossible and not fourth.answers  # unlabelled
    assert fifth.id == "5" and not fifth.is_impossible
    assert problems.as_dict() == {}


def test_answers_that_are_elsewhere_are_searched_and_counted(tmp_path):
    context = "x y\n z x y, x  y"
    content = layout(
        qa("1", answers=[answer("x y", 5)]),  # the occurrence nearest to 5 is at 7
        qa("2", answers=[answer("x y", 12)]),  # at 12, with other white space
        qa("3", answers=[answer("y z", 2)]),
        qa("4", answers=[{"text": "z"}]),
        qa("5", answers=[answer("x z", 0), answer("", 0), answer("z", 5)]),
        qa("6", answers=[answer(" z ", 4)]),
        qa("7", answers=[answer("z", -3)]),
        qa("8", answers=[answer("x", 0)], is_impossible=True),
        context=context,
    )
    file = tmp_path / "set.json"
    file.write_text(json.dumps(content))
    problems = Problems()
    questions = read_questions(file, problems)
    spans = [[a.span for a in question.answers] for question in questions]
    assert spans == [[(7, 10)], [(12, 16)], [(2, 6)], [(5, 6)], [None, None, (5, 6)], [(5, 6)], [(5, 6)], []]
    place = f"{file}, article 0, paragraph 0, question "
    assert problems.as_dict() == {
        squad.MOVED: {"count": 4, "first": f"{place}0 (1)"},
        squad.NOT_FOUND: {"count": 2, "first": f"{place}4 (5)"},
        squad.CONTRADICTION: {"count": 1, "first": f"{place}7 (8)"},
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "has no list in"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, "article 0, paragraph 0 has no 'context'"),
        ({"data": [{"paragraphs": 1}]}, "article 0 has int in 'paragraphs'"),
        ({"data": ["x"]}, "article 0 is no object but str"),
        (layout({"question": "q"}), "paragraph 0, question 0 has no 'id'"),
        (layout({"id": "7"}), r"question 0 \(7\) has no 'question'"),
        (layout(qa(answers=[{"answer_start": 1}])), r"question 0 \(1\) has no 'text'"),
        (layout(qa(answers=[answer("a", "0")])), r"question 0 \(1\) has str in 'answer_start'"),
        (layout(qa("7"), qa("7")), r"question 1 \(7\): the id '7' was given at .*question 0 \(7\): ids must differ"),
        (layout(qa(True)), r"question 0 has bool in 'id'"),
        (layout(qa(is_impossible="false")), r"question 0 \(1\) has str in 'is_impossible'"),
        (layout(qa("\ud83d")), r"question 0: 'id' has \\ud83d, half of a character"),
        (layout(qa(question="q \ude00")), r"question 0 \(1\): 'question' has \\ude00, half of a character"),
        (layout(qa(), context="\ud83d"), r"paragraph 0: 'context' has \\ud83d, half of a character"),
    ],
)
def test_a_wrong_layout_names_its_place(tmp_path, content, message):
    file = tmp_path / "set.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as error:
        read_questions(file)
    assert str(file) in str(error.value) and "\n" not in str(error.value)


def test_no_file_and_no_json(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.json is no file"):
        read_questions(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{"data": [\n}')
    with pytest.raises(ValueError, match=r"bad\.json is not JSON .*line 2"):
        read_questions(tmp_path / "bad.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"deep\.json is not JSON .*recursion"):
        read_questions(tmp_path / "deep.json")


def test_windows_by_hand():
    """Ten tokens a sequence: 2 for the question, 3 specials, 5 for the context; windows at 0, 3, 6."""
    question = make_question("1", "q?", "abcdefghij"[0] + " b c d e f g h i j", [("g", 12)])
    windows = make_windows([question], LETTERS, WindowSettings(max_seq_length=10, doc_stride=3, max_query_length=4))
    assert [list(w.sequence.ids) for w in windows] == [
        [CLS, A + 16, Q, SEP, A, A + 1, A + 2, A + 3, A + 4, SEP],
        [CLS, A + 16, Q, SEP, A + 3, A + 4, A + 5, A + 6, A + 7, SEP],
        [CLS, A + 16, Q, SEP, A + 6, A + 7, A + 8, A + 9, SEP],
    ]
    assert list(windows[0].sequence.segment_ids) == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert [w.first_column for w in windows] == [4, 4, 4]
    assert [w.question_index for w in windows] == [0, 0, 0]
    assert windows[1].offsets.tolist() == [[6, 7], [8, 9], [10, 11], [12, 13], [14, 15]]
    # d (token 3): min(3, 1) + .05 in the first, min(0, 4) + .05 in the second; e: a tie at 0.05 and 1.05; and so on.
    assert [w.max_context.tolist() for w in windows] == [
        [True, True, True, True, False],
        [False, True, True, True, False],
        [False, True, True, True],
    ]
    assert [columns(w) for w in windows] == [(0, 0), (7, 7), (4, 4)]


def test_targets():
    context = "a b c d"
    questions = [
        make_question("1", "q", context, [("b c", 2)]),
        make_question("2", "q", context, is_impossible=True),
        make_question("3", "q", context),
        make_question("4", "q", context, [("z", 0)]),
        make_question("5", "q", context, [("z", 0), ("d", 6)]),
    ]
    problems = Problems()
    windows = make_windows(questions, LETTERS, problems=problems)
    assert [columns(w) for w in windows] == [(4, 5), (0, 0), (-1, -1), (-1, -1), (6, 6)]
    assert [w.has_target for w in windows] == [True, True, False, False, True]
    assert problems.as_dict() == {squad.NO_TARGET: {"count": 1, "first": "question '4'"}}


def test_an_answer_cut_by_a_window_is_not_in_it():
    question = make_question("1", "q", "a b c d e f", [("c d", 4)])
    windows = make_windows([question], LETTERS, WindowSettings(max_seq_length=7, doc_stride=2, max_query_length=2))
    assert [columns(w) for w in windows] == [(0, 0), (3, 4), (0, 0)]


def test_the_tightest_span_of_a_part_of_a_word():
    """The case of the original's comment: "1895" of "(1895-1943)"; and 서울 of 서울은."""
    tokenizer = WordPiece([*SPECIALS, "1895", "1943", "-", "(", ")", ".", "서울", "##은", "수도"], lowercase=False)
    english = make_question("1", "1943", "(1895-1943).", [("1895", 1)])
    korean = make_question("2", "수도", "수도 서울은", [("서울", 3)])
    first, second = make_windows([english, korean], tokenizer)
    assert columns(first) == (4, 4) and first.offsets[1].tolist() == [1, 5]
    assert columns(second) == (4, 4) and second.offsets[1].tolist() == [3, 5]


def test_an_answer_inside_a_piece_takes_the_whole_piece():
    tokenizer = WordPiece([*SPECIALS, "japanese", "in"], lowercase=True)
    (window,) = make_windows([make_question("1", "in", "in Japanese", [("Japan", 3)])], tokenizer)
    assert columns(window) == (4, 4) and window.offsets[1].tolist() == [3, 11]


def test_odd_inputs_lose_no_question():
    questions = [
        make_question("1", "a b c d e f", "x"),
        make_question("2", "\u200b", "x y"),
        make_question("3", "q", " \n", is_impossible=True),
        make_question("4", "q", "x", [("x", 0)]),
    ]
    problems = Problems()
    settings = WindowSettings(max_seq_length=10, max_query_length=4)
    windows = make_windows(questions, LETTERS, settings, problems)
    assert [w.question_index for w in windows] == [0, 1, 2, 3]
    assert [len(w.sequence.ids) for w in windows] == [8, 5, 4, 5]
    assert [len(w.offsets) for w in windows] == [1, 2, 0, 1]
    assert columns(windows[2]) == (0, 0) and columns(windows[3]) == (3, 3)
    assert problems.as_dict() == {
        squad.CONTEXT_EMPTY: {"count": 1, "first": "question '3'"},
        squad.QUESTION_CUT: {"count": 1, "first": "question '1'"},
        squad.QUESTION_EMPTY: {"count": 1, "first": "question '2'"},
    }


def test_settings_without_room_are_refused():
    with pytest.raises(ValueError, match="max_seq_length 67 leaves no room"):
        WindowSettings(max_seq_length=67)
    with pytest.raises(ValueError, match="doc_stride is 0"):
        WindowSettings(doc_stride=0)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("squad/dev-v2.0-half.json", 6_078),
        ("squad/xquad/xquad.zh.json", 1_190),
        ("korean/korquad1/KorQuAD_v1.0_dev.json", 5_774),
    ],
)
def test_real_files_have_every_answer_in_its_place(shared_data, name, count):
    problems = Problems()
    questions = read_questions(shared_data / name, problems)
    assert len(questions) == count and problems.as_dict() == {}
    for question in questions:
        assert question.is_impossible == (not question.answers)
        assert all(a.span and question.context[slice(*a.span)] == a.text.strip() for a in question.answers)
