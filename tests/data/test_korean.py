"""Korean benchmarks: the official files are read whole, with the classes, scores and choices they have."""

import collections

import pytest

from bert_jax.data.choices import ChoiceExample
from bert_jax.data.korean import ABSENT_FILE, KOREAN, korean_task, read_korean
from bert_jax.data.text_files import Problems

COUNTS = {
    ("nsmc", "train"): 30_000,
    ("nsmc", "test"): 5_000,
    ("kornli", "dev"): 2_490,
    ("kornli", "test"): 5_010,
    ("klue_nli", "dev"): 3_000,
    ("korsts", "train"): 5_749,
    ("korsts", "dev"): 1_500,
    ("korsts", "test"): 1_379,
    ("klue_sts", "dev"): 519,
    ("kobest_boolq", "train"): 3_665,
    ("kobest_boolq", "dev"): 700,
    ("kobest_boolq", "test"): 1_404,
    ("kobest_copa", "train"): 3_076,
    ("kobest_copa", "dev"): 500,
    ("kobest_copa", "test"): 1_000,
    ("kobest_wic", "train"): 3_318,
    ("kobest_wic", "dev"): 610,
    ("kobest_wic", "test"): 1_260,
    ("kobest_sentineg", "train"): 3_649,
    ("kobest_sentineg", "dev"): 400,
    ("kobest_sentineg", "test"): 397,
    ("kobest_sentineg", "test_origin"): 397,
    ("kobest_hellaswag", "train"): 2_029,
    ("kobest_hellaswag", "dev"): 500,
    ("kobest_hellaswag", "test"): 500,
}


def read(shared_data, task, split, problems=None):
    folder = shared_data / "korean" / ("nsmc_reconstructed" if task == "nsmc" else "")
    return read_korean(task, folder, split, problems or Problems())


@pytest.mark.parametrize(("task", "split"), [key for key in COUNTS if key != ("nsmc", "train")])
def test_real_files_are_read_whole(shared_data, task, split):
    problems = Problems()
    examples = read(shared_data, task, split, problems)
    record = KOREAN[task]
    assert len(examples) == COUNTS[task, split] and problems.counts == {}
    labels = {example.label for example in examples}
    if record.choices:
        assert {len(example.endings) for example in examples} == {record.choices}
        assert labels == set(range(record.choices))
    elif record.is_regression:
        assert all(isinstance(label, float) and 0 <= label <= 5 for label in labels)
    else:
        assert labels == set(record.labels)


def test_the_largest(shared_data):
    examples = read(shared_data, "nsmc", "train")
    assert len(examples) == COUNTS["nsmc", "train"]
    assert collections.Counter(example.label for example in examples) == {"1": 15_000, "0": 15_000}
    assert (examples[0].text_a, examples[0].row_id) == ("당신은 온수입니까 당신은 온수", "9652167")


def test_inference(shared_data):
    example = read(shared_data, "klue-nli", "dev")[0]
    assert (example.text_a, example.text_b, example.label, example.row_id) == (
        "흡연자분들은 발코니가 있는 방이면 발코니에서 흡연이 가능합니다.",
        "어떤 방에서도 흡연은 금지됩니다.",
        "contradiction",
        "klue-nli-v1_dev_00000",
    )
    assert KOREAN["klue_nli"].label_names == ("참", "거짓", "중립")
    first = read(shared_data, "kornli", "dev")[0]
    assert (first.text_a, first.label) == ('그리고 그가 말했다, "엄마, 저 왔어요."', "neutral")


def test_similarity(shared_data):
    first = read(shared_data, "klue_sts", "dev")[0]
    assert (first.text_b, first.label) == ("무엇보다도, 호스트들은 매우 친절했습니다.", 4.9)


def test_yes_and_no_in_one_spelling(shared_data):
    # The file has 359 FALSE, 357 True, 348 TRUE and 340 False.
    labels = collections.Counter(example.label for example in read(shared_data, "kobest_boolq", "test"))
    assert labels == {"False": 699, "True": 705}
    example = read(shared_data, "kobest_wic", "dev")[0]
    assert "[실정]" in example.text_a and "[실정]" in example.text_b and example.label == "False"


def test_negated_reviews(shared_data):
    negated, origin = (read(shared_data, "kobest_sentineg", split)[0] for split in ("test", "test_origin"))
    assert (negated.text_a, negated.label) == ("택배사 정말 마음에 듬", "1")
    assert (origin.text_a, origin.label) == ("택배사 정말 마음에 안들음", "0")


def test_choices(shared_data):
    assert read(shared_data, "kobest_copa", "test")[1] == ChoiceExample(
        "영화를 보고 눈물을 흘렸다. 왜냐하면", ("재밌는 내용의 영화를 봤다.", "슬픈 내용의 영화를 봤다."), 1, "2"
    )
    quoted = [e for e in read(shared_data, "kobest_hellaswag", "train") if '"평균"' in e.context]
    assert len(quoted) == 1 and quoted[0].context.startswith('수학에서 "평균"이란')


def test_inference_trains_on_two_files(tmp_path):
    header = "sentence1\tsentence2\tgold_label\n"
    (tmp_path / "multinli.train.ko.tsv").write_text(f'{header}"가\t나"\tneutral\n', encoding="utf-8")
    problems = Problems()
    assert len(read_korean("kornli", tmp_path, "train", problems)) == 1
    assert problems.as_dict() == {ABSENT_FILE: {"count": 1, "first": f"{tmp_path}/snli_1.0_train.ko.tsv"}}
    (tmp_path / "snli_1.0_train.ko.tsv").write_text(f"{header}다\t라\tentailment\n", encoding="utf-8")
    examples = read_korean("KorNLI", tmp_path, "train", Problems())
    assert [(e.text_a, e.text_b, e.label) for e in examples] == [('"가', '나"', "neutral"), ("다", "라", "entailment")]


def test_errors(tmp_path):
    with pytest.raises(ValueError, match="'ynat' is no Korean task: choose from nsmc, kornli"):
        korean_task("ynat")
    with pytest.raises(ValueError, match="nsmc has no split 'dev': choose from train, test"):
        read_korean("nsmc", tmp_path, "dev", Problems())
    with pytest.raises(FileNotFoundError, match=r"no ratings_test.txt of nsmc in .* or its folder nsmc: download"):
        read_korean("nsmc", tmp_path, "test", Problems())
    (tmp_path / "dev.tsv").write_text("ID\tsentence\tquestion\t1\t2\tAnswer\n1\t가\t왜\t나\t다\t1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"dev.tsv:2: question '왜' is not one of 결과, 원인"):
        read_korean("kobest_copa", tmp_path, "dev", Problems())
    (tmp_path / "dev.tsv").write_text("ID\tsentence\tquestion\t1\t2\tAnswer\n1\t가\t결과\t나\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"dev.tsv:2: the row has 4 of 6 cells"):
        read_korean("kobest_copa", tmp_path, "dev", Problems())
