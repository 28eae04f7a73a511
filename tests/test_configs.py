"""Every config, in each of its choices, is one that the loop accepts; every field is read."""

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from ml_collections import ConfigDict, config_flags

from bert_jax.data.corpus_builder import build
from bert_jax.data.documents import Reading
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.vocabulary import learn_byte_bpe, learn_sentencepiece, learn_wordpiece
from bert_jax.data.wordpiece import WordPiece
from bert_jax.model.config import BertConfig, released_sizes
from bert_jax.training.metric_log import read_metrics
from bert_jax.training.settings import learning_rate_fraction, plan, read_config
from bert_jax.training.train import train
from configs import albert, features, korean, laptop, laptop_tasks, modern, ner, pretrain, quickstart, restarts

ROOT = Path(__file__).parents[1]
FINE_TUNING = ("classify", "features", "glue", "korean", "ner", "squad", "swag")
# Recipes of pre-training -> the vocabulary that their docstrings learn.
PRETRAINING = {"pretrain": "wordpiece", "roberta": "byte_bpe", "albert": "sentencepiece", "one_day": "wordpiece"}
PRETRAINING |= {"modern": "wordpiece", "kobert": "sentencepiece"}
OF_SEEDS = {"restarts": 5, "laptop_tasks": 3}  # whose sweeps are over seeds alone: how many
RECIPES = (*PRETRAINING, "laptop", *FINE_TUNING, *OF_SEEDS)


def accepted(config: ConfigDict, corpus: Path) -> Any:
    config.corpus = str(corpus)
    return read_config(config)


@pytest.mark.parametrize("size", released_sizes())
def test_pretrain_knows_every_released_size(size: str) -> None:
    model: Any = pretrain.get_config(f"size={size}").model
    sizes = {
        k: v
        for k, v in model.items()
        if k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    }
    assert BertConfig(**sizes) == BertConfig.of_size(size)


@pytest.mark.parametrize(
    "choices",
    [
        "seq=128",
        "seq=512",
        "seq=two_phase",
        *(f"objective={name}" for name in ("mlm", "mlm_sop", "ltr", "rtl")),
        *(f"masking={name}" for name in ("100-0-0", "80-0-20", "80-20-0", "0-20-80", "0-0-100", "whole_word", "ngram")),
        "optimizer=lamb,size=large",
    ],
)
def test_pretrain_choices_are_accepted(choices: str, tiny_corpus: Path) -> None:
    settings, task = accepted(pretrain.get_config(choices), tiny_corpus)
    phases = plan(settings, task)
    assert sum(phase.train_steps for phase in phases) == (8601 if "lamb" in choices else 1_000_000)


@pytest.mark.parametrize(
    ("name", "choices", "steps"),
    [
        *(("roberta", f"size={size}", 500_000) for size in ("base", "large", "tiny")),
        *(("albert", f"size={size}", 125_000) for size in albert.SIZES),
        ("one_day", "size=base", 37_000),
        ("modern", "size=base", 70_000),
        ("kobert", "size=base", 150_000),
    ],
)
def test_successors_are_accepted(name: str, choices: str, steps: int, tiny_corpus: Path) -> None:
    settings, task = accepted(import_module(f"configs.{name}").get_config(choices), tiny_corpus)
    phases = plan(settings, task)
    assert sum(phase.train_steps for phase in phases) == steps
    rates = [float(learning_rate_fraction(jnp.int32(steps * i // 20), settings, phases)) for i in range(21)]
    assert max(rates) > 0.85 and rates[0] == rates[-1] == 0
    assert (settings.optimizer.name == "lamb") == (task.model.num_groups == 1) == (name == "albert")


def test_lamb_falls_as_nvidias(tiny_corpus: Path) -> None:
    """By the square root of what is left of each phase."""
    settings, task = accepted(pretrain.get_config("optimizer=lamb,size=large"), tiny_corpus)
    steps = (1000, 2000, 7038 + 100, 7038 + 1172)
    rates = [6e-3 * float(learning_rate_fraction(jnp.int32(s), settings, plan(settings, task))) for s in steps]
    expected = [3e-3, 6e-3 * (1 - 2000 / 7038) ** 0.5, 2e-3, 4e-3 * (391 / 1563) ** 0.5]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


def test_the_decay_of_modern_is_its_second_phase(tiny_corpus: Path) -> None:
    settings, task = accepted(modern.get_config(), tiny_corpus)
    phases = plan(settings, task)
    short, long = phases
    assert short.batch_size * short.max_seq_length == long.batch_size * long.max_seq_length
    rates = [float(learning_rate_fraction(jnp.int32(s), settings, phases)) for s in (10_000, 63_000, 66_500)]
    np.testing.assert_allclose(rates, [1, 1, 0.5], atol=1e-6)


@pytest.fixture(scope="module")
def text_corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of the same documents by each kind of vocabulary."""
    rng = np.random.default_rng(0)
    words = np.asarray(["the", "cat", "sat", "on", "a", "mat", "there", "한국어", "문장도", "있다", "don't", "bark."])
    texts = [
        (str(number), "\n".join(" ".join(rng.choice(words, 12)) for _ in range(rng.integers(2, 9))))
        for number in range(200)
    ]
    everything = [text for _, text in texts]
    tokenizers: dict[str, Tokenizer] = {
        "wordpiece": learn_wordpiece(everything, 80, lowercase=False),
        "sentencepiece": learn_sentencepiece(everything, 60),
        "byte_bpe": learn_byte_bpe(everything, 300),
    }
    directory = tmp_path_factory.mktemp("corpora")
    for kind, tokenizer in tokenizers.items():
        build(texts, tokenizer, directory / kind, held_out=0.1, workers=1, progress=False, reading=Reading("lines"))
    return directory


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", [name for name in PRETRAINING if name != "pretrain"])
def test_every_successor_trains(name: str, text_corpora: Path, tmp_path: Path) -> None:
    """Two steps of a tiny model; where the recipe has another schedule, of each phase."""
    config = import_module(f"configs.{name}").get_config()
    config.lock()
    config.corpus = str(text_corpora / PRETRAINING[name])
    layers = 2 if name == "albert" else 1
    sizes = {"num_hidden_layers": layers, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    config.model.update(sizes | {"scan_layers": False})
    config.update({"batch_size": 16, "max_seq_length": 32, "accumulation_steps": 1, "eval_examples": 16})
    phases = [{"train_steps": 2}, {"train_steps": 2, "max_seq_length": 64}]
    phases = phases[: len(config.phases) if config.schedule != "linear" else min(len(config.phases), 1)]
    config.update({"phases": tuple(phases), "train_steps": None if phases else 2, "log_every_steps": 1})
    config.mesh.data = 1
    if config.warmup_steps:
        config.warmup_steps = 1
    result = train(config, tmp_path)
    losses = [line["mlm_loss"] for line in read_metrics(tmp_path) if "loss" in line]
    assert len(losses) == 2 * max(len(phases), 1) and np.isfinite([*losses, result["mlm_loss"]]).all()
    assert ("nsp_loss" in result) == (name in ("albert", "kobert"))


@pytest.mark.parametrize("choices", ["", "objective=ltr", "masking=0-0-100", "size=L1_H64_A4"])
def test_laptop_is_pretraining_made_small(choices: str, tiny_corpus: Path) -> None:
    settings, task = accepted(laptop.get_config(choices), tiny_corpus)
    assert [(p.batch_size, p.max_seq_length) for p in plan(settings, task)] == [(32, 64), (32, 128)]
    assert sum(phase.train_steps for phase in plan(settings, task)) == laptop.STEPS
    assert (task.model.dtype, task.model.max_position_embeddings) == ("float32", 128)
    with pytest.raises(ValueError, match=r"laptop.py has no choice 'seq'"):
        laptop.get_config("seq=128")


def has_field(config: Any, name: str) -> bool:
    for part in name.split("."):
        if not isinstance(config, ConfigDict) or part not in config:
            return False
        config = config[part]
    return True


def unknown_flags(text: str) -> list[str]:
    """Flags of commands that their config has not, and flags elsewhere that no config of their section has.

    Every ``configs/NAME.py:choices`` must be accepted.
    """
    unknown = []
    for part in re.split(r"^## ", text.replace("\\\n", ""), flags=re.MULTILINE):
        named = [one for one in re.findall(r"configs/(\w+)\.py(?::([\w=,.-]+))?", part) if one[0] in RECIPES]
        named = named or [(name, "") for name in RECIPES]
        of_section = [import_module(f"configs.{name}").get_config(choices) for name, choices in named]
        for line in part.splitlines():
            command = re.search(r"--config configs/(\w+)\.py(?::([\w=,.-]+))?", line)
            configs = [import_module(f"configs.{command[1]}").get_config(command[2] or "")] if command else of_section
            flags_given = re.findall(r"--config\.([\w.]+)=", line)
            unknown += [name for name in flags_given if not any(has_field(config, name) for config in configs)]
    return unknown


@pytest.mark.parametrize("path", ["README.md", *(f"configs/{name}.py" for name in RECIPES)])
def test_the_flags_of_a_text_are_fields(path: str) -> None:
    text = (ROOT / path).read_text()
    assert unknown_flags(ast.get_docstring(ast.parse(text)) or "" if path.endswith(".py") else text) == []


def test_a_flag_is_checked_against_the_config_of_its_command() -> None:
    commands = "run --config configs/{} \\\n    --config.corpus=x --config.mesh.fsdp=2 --config.mesh.rows=1\n"
    assert unknown_flags(commands.format("pretrain.py:size=base")) == ["mesh.rows"]
    assert unknown_flags(commands.format("squad.py:version=1.1")) == ["corpus", "mesh.rows"]
    assert unknown_flags("## A\n`configs/ner.py` `--config.corpus=`\n## B\n`--config.corpus=`\n") == ["corpus"]
    with pytest.raises(ValueError, match=r"squad.py has no choice '1.1'"):
        unknown_flags("`configs/squad.py:1.1`")


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"pretrain.py has no choice 'sise'; it has size, seq"):
        pretrain.get_config("sise=base")
    for choice in ("size=huge", "masking=80", "seq=short"):
        with pytest.raises(ValueError, match="malformed size, seq or masking"):
            pretrain.get_config(choice)


@pytest.mark.parametrize("steps", [1, 2, 5, 1200])
def test_quickstart_has_as_many_steps_as_asked(steps: int, tiny_corpus: Path) -> None:
    config = quickstart.get_config()
    config.phases = quickstart.phases(steps)
    settings, task = accepted(config, tiny_corpus)
    assert sum(phase.train_steps for phase in plan(settings, task)) == steps


def test_configs_are_short_and_say_how_to_run_them() -> None:
    paths = set((ROOT / "configs").glob("[!_]*.py")) - {ROOT / "configs" / "shared.py"}
    assert {path.stem for path in paths} == {*RECIPES, "quickstart"}
    for path in paths:
        text = path.read_text()
        assert "python -m experiments." in text.split('"""')[1], path
        assert len(text.splitlines()) <= 60, path


CHOICES = {
    "glue": [f"task={name}" for name in ("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli")],
    "squad": ["version=1.1", "version=2.0", "version=1.1,stage=triviaqa"],
    "swag": ["data=swag", "data=hellaswag"],
    "ner": [f"data={name}" for name in ner.FILES] + ["data=conll2003,context=sentence"],
    "features": [f"features={name}" for name in features.FEATURES] + ["data=columns", "context=sentence"],
    "classify": ["kind=classes", "kind=regression"],
    "korean": [f"task={name}" for name in (*korean.CLASSIFICATION, *korean.CHOICE, "korquad", "klue_ner")],
    "laptop_tasks": [f"task={name}" for name in laptop_tasks.TASKS] + ["task=wnut17,features=last"],
    "restarts": [
        *("recipe=glue,task=mrpc", "recipe=squad,version=1.1", "recipe=swag", "recipe=ner,data=wnut17"),
        "recipe=features,features=last",
    ],
}
TAGGED = {
    "conll2003": "-DOCSTART- -X- O O\n\nAda NNP I-NP I-PER\nsleeps VBZ I-VP O\n",
    "wnut17": "Ada\tB-person\nsleeps\tO\n",
    "germeval2014": "#\tsource\n1\tAda\tB-PER\tO\n2\tsleeps\tO\tO\n",
    "klue_ner": "## klue-ner-1\t<나래:PS> 잔다\n나\tB-PS\n래\tI-PS\n \tO\n잔\tO\n다\tO\n",
    "columns": "Ada B-PER\nsleeps O\n",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to begin with, and the least data of one's own."""
    directory = tmp_path_factory.mktemp("data")
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Ada", "sleeps"], lowercase=False)
    tokenizer.save(directory / "run" / "tokenizer")
    BertConfig(vocab_size=7, hidden_size=8, num_hidden_layers=4, num_attention_heads=2, intermediate_size=16).to_json(
        directory / "run" / "bert_config.json"
    )
    (directory / "train.tsv").write_text("review\tlabel\nAda\t1\nsleeps\t2.5\n")
    for name, text in TAGGED.items():
        (directory / ner.FILES[name][0]).write_text(text)
    return directory


@pytest.mark.parametrize(("name", "choices"), [(name, choice) for name, many in CHOICES.items() for choice in many])
def test_every_choice_of_fine_tuning_is_accepted(name: str, choices: str, files: Path) -> None:
    config = import_module(f"configs.{name}").get_config(choices)
    config.lock()
    config.update({"init_from": str(files / "run"), "data_dir": str(files)})
    if name == "classify":
        config.data.update({"train": "train.tsv", "text_a": "review"})
    if config.task == "features":
        config.features_dir = str(files / "features")
    settings, task = read_config(config)
    assert task.name == settings.task and task.model.hidden_size == 8
    assert settings.train_epochs and task.read_file is not None


@pytest.mark.parametrize("name", FINE_TUNING)
def test_what_a_fine_tuning_may_change_of_its_encoder(name: str, files: Path) -> None:
    changes = {"dtype": "bfloat16", "remat": True, "scan_layers": True, "attention_implementation": "cudnn"}
    changes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.2}
    config = import_module(f"configs.{name}").get_config()
    config.lock()
    for field, value in changes.items():
        setattr(config.model, field, value)
    assert config.model.to_dict() == changes
    with pytest.raises(AttributeError, match="hidden_size"):  # it is init_from's
        config.model.hidden_size = 8
    if name != "features":  # whose encoder is one
        config.right_to_left_from = "runs/rtl"
        assert (config.init_from, config.concatenated) == (None, False)


@pytest.mark.parametrize("name", FINE_TUNING)
def test_every_fine_tuning_has_a_sweep_over_its_fields(name: str) -> None:
    recipe = import_module(f"configs.{name}")
    points: list[dict[str, Any]] = []
    recipe.sweep(lambda **point: points.append(point))
    assert len(points) == {"glue": 12, "ner": 15, "features": 5}.get(name, 9)
    for point in points:
        config = recipe.get_config().lock()
        config.update_from_flattened_dict(point)
        assert point.keys() == {"optimizer.learning_rate", "seed"}
        assert config.optimizer.learning_rate == point["optimizer.learning_rate"]
    assert len({tuple(point.values()) for point in points}) == len(points)


@pytest.mark.parametrize("name", OF_SEEDS)
def test_restarts_differ_by_their_seed_alone(name: str) -> None:
    points: list[dict[str, Any]] = []
    import_module(f"configs.{name}").sweep(lambda **point: points.append(point))
    assert points == [{"seed": seed} for seed in range(OF_SEEDS[name])]


def test_restarts_are_of_any_recipe() -> None:
    assert restarts.get_config("recipe=squad,version=1.1") == import_module("configs.squad").get_config("version=1.1")
    assert restarts.get_config() == import_module("configs.glue").get_config()
    for choices in ("task=mrpc", "recipe=mrpc", "recipe"):
        with pytest.raises(ValueError, match=rf"restarts.py begins with recipe=, not '{choices}'; take recipe=glue, "):
            restarts.get_config(choices)
    with pytest.raises(ValueError, match=r"laptop_tasks.py has no features of task=qnli; take task=wnut17"):
        laptop_tasks.get_config("task=qnli,features=last")


def test_korean_from_scratch(files: Path) -> None:
    config = korean.get_config("task=korsts,size=mini")
    config.tokenizer = str(files / "run" / "tokenizer")
    _, task = read_config(config)
    assert (task.model.num_hidden_layers, task.model.hidden_size, task.model.dtype) == (4, 256, "float32")
    with pytest.raises(ValueError, match="init_from is not set: give a run's workdir or a Hugging Face directory"):
        read_config(korean.get_config("task=korsts"))


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        *((name, "sise=1", rf"{name}.py has no choice 'sise'; it has ") for name in CHOICES if name != "restarts"),
        ("korean", "korquad", "korean.py has no choice 'korquad'; it has task, size"),
        ("korean", "task=nmsc", "korean.py has no task='nmsc'; take nsmc, kornli, klue_nli"),
        ("korean", "size=huge", "size='huge' is malformed"),
        ("swag", "data=copa", "swag.py has no data='copa'; take swag or hellaswag"),
        ("classify", "kind=scores", "classify.py has no kind='scores'; take classes or regression"),
        ("ner", "data=ner", "ner.py has no data='ner'; take conll2003, wnut17"),
        ("ner", "context=paragraph", "ner.py has no context='paragraph'; take auto, document or sentence"),
        ("squad", "version=3", "squad.py has no version='3'; take 2.0 or 1.1"),
        ("squad", "1.1", "squad.py has no choice '1.1'; it has version, stage"),
        ("squad", "version", "squad.py: the choice version has no value; write version=VALUE"),
        ("ner", "wnut17", "ner.py has no choice 'wnut17'; it has data, context"),
        ("features", "last", "features.py has no choice 'last'; it has features, data, context"),
        ("features", "features=first", "features.py has no features='first'; take concat_last_four, embeddings"),
        *((name, "seq=128", rf"{name}.py has no choice 'seq'; it has size") for name in list(PRETRAINING)[1:]),
        ("albert", "size=tiny", "albert.py has no size='tiny'; take base, large, xlarge or xxlarge"),
        ("roberta", "size=huge", "malformed size"),
        ("pretrain", "large", "pretrain.py has no choice 'large'; it has size, seq"),
        ("pretrain", "objective=clm", "pretrain.py has no objective='clm'; take mlm_nsp, mlm_sop, mlm, ltr or rtl"),
    ],
)
def test_what_fine_tuning_refuses(name: str, choices: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        import_module(f"configs.{name}").get_config(choices)


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # of ml_collections
def test_the_fields_of_classify_can_be_typed(files: Path) -> None:
    typed = {
        "init_from": files / "run",
        "data_dir": files,
        "data.train": "train.tsv",
        "data.text_a": "0",
        "data.label": "1",
        "data.header": "False",
        "labels": "('label', '1', '2.5')",
        "doc_stride": "64",
    }
    path = ROOT / "configs" / "classify.py"
    arguments = ["program", f"--config={path}", *(f"--config.{name}={value}" for name, value in typed.items())]
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", None, "", values, lock_config=True, sys_argv=arguments)
    values(arguments)
    _, task = read_config(values.config)
    assert task.labels == ("label", "1", "2.5")
    assert task.stream(2, 8, 1).num_examples == 3  # the header is a row
    values.config.data.text_a = "review"
    with pytest.raises(ValueError, match="column 'review': without a header a column is its number, from 0"):
        read_config(values.config)
