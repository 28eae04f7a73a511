"""Every notebook runs from top to bottom, on a small model; what is stored of it is without outputs."""

import os
import re
import sys
from itertools import islice
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from bert_jax.data.corpus_builder import build
from bert_jax.data.vocabulary import learn_wordpiece
from bert_jax.report.style import STYLE
from bert_jax.training.train import train
from configs import quickstart
from experiments.python_text import python_documents

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments" / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
RUN = {"run/metrics.jsonl", "run/bert_config.json", "run/tokenizer", "run/checkpoints"}
# Of each notebook how many figures it shows, and what it leaves in its output folder.
EXPECTED = {
    "first_steps": (2, set()),
    "fine_tune_your_own_tsv": (2, {"data/train.tsv", "data/dev.tsv", "run/evaluation.json", "run/report.html", *RUN}),
    "look_inside": (6, set()),
    "pretrain_on_your_own_text": (2, {"texts/0000.txt", "corpus/corpus.json", *RUN}),
    "does_nsp_help": (2, {"pretrained/mlm,seed=1/result.json", "fine_tuned/halves/mlm_nsp,seed=0/sweep.json"}),
}
# So small that all of them take seconds; the model is the fixture's.
PARAMETERS = {"EPOCHS": 1, "MOST_A_CLASS": 20, "VOCAB_SIZE": 400, "STEPS": 6, "HIDDEN_SIZE": 32, "DOCUMENTS": 30}
PARAMETERS |= {"SEEDS": 2, "RESTARTS": 1}


class ThisInterpreter(AsyncKernelManager):
    """Starts kernels with the Python of these tests, whatever kernels are installed."""

    kernel_spec = KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name="Python 3",
        language="python",
    )


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workdir of a few dozen steps on some of the documentation that Python carries."""
    directory = tmp_path_factory.mktemp("small_model")
    documents = list(islice(python_documents(), 30))
    tokenizer = learn_wordpiece((text for _, text in documents), 400, lowercase=True)
    build(documents, tokenizer, directory / "corpus", held_out=0.1, workers=1, progress=False)
    config = quickstart.get_config()
    config.corpus = str(directory / "corpus")
    config.model.update({"hidden_size": 32, "intermediate_size": 64})
    config.phases, config.batch_size, config.eval_examples = ({"train_steps": 30},), 16, 32
    train(config, directory / "run")
    return directory / "run"


def test_these_are_all():
    assert set(NAMES) == set(EXPECTED)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_from_top_to_bottom(name, small_model, tmp_path, monkeypatch):
    # What Jupyter writes, here and in the kernel, stays in this test's folder.
    for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")  # without it, jupyter_core warns of the change to come
    parameters = {f"BERT_JAX_{field}": str(value) for field, value in PARAMETERS.items()}
    parameters |= {"BERT_JAX_MODEL": str(small_model), "BERT_JAX_OUTPUT": str(tmp_path / "output")}
    # One device, as a reader has it; the rest of the flags is that of the tests.
    flags = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")
    before = sorted(FOLDER.iterdir())

    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    start = ROOT if name == "first_steps" else FOLDER  # from either place
    client = NotebookClient(
        notebook, kernel_manager_class=ThisInterpreter, timeout=900, resources={"metadata": {"path": str(start)}}
    )
    client.execute(env=os.environ | parameters | {"XLA_FLAGS": flags})

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error"]
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    shown = [output.data for output in outputs if "data" in output]
    figures, files = EXPECTED[name]
    assert sum("image/png" in data for data in shown) == figures
    # The value of a cell that draws is the figure, not what its last line returned.
    assert not [data for data in shown if re.match(r"\[?<?(Text\(|matplotlib|Bar)", data.get("text/plain", ""))]
    assert {file for file in files if (tmp_path / "output" / file).exists()} == files
    assert sorted(FOLDER.iterdir()) == before


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_is_valid_and_has_no_outputs(name):
    """If this fails: jupyter nbconvert --clear-output --inplace experiments/notebooks/*.ipynb"""
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert notebook.nbformat == 4
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [], cell.id
            assert cell.execution_count is None, cell.id
    assert not re.findall(r"/(?:home|root|Users|work|tmp|mnt)/", text)


@pytest.mark.parametrize("name", NAMES)
def test_links_between_notebooks_lead_somewhere(name):
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    assert all((FOLDER / target).exists() for target in re.findall(r"\]\(([^)]+\.ipynb)\)", text))


def test_figures_have_the_colours_of_the_report():
    style = (FOLDER / "report.mplstyle").read_text(encoding="utf-8")
    colours = re.findall(r"\b[0-9a-f]{6}\b", style)
    assert len(colours) > 8
    assert all(f"#{colour}" in STYLE for colour in colours)
