"""Every test runs on 8 fake CPU devices, with strict promotion, warnings as errors and checked array shapes."""

import os
from pathlib import Path

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"
# Models are tiny and compiled once: half the optimization takes half the time, to the same tolerances.
os.environ["XLA_FLAGS"] = " ".join(
    (
        os.environ.get("XLA_FLAGS", ""),
        "--xla_force_host_platform_device_count=8",
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    )
)
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
# One cache for all workers and runs: most of the suite's time would otherwise be compilation.
CACHE = Path(__file__).parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")

from jaxtyping import install_import_hook  # noqa: E402  (the environment above must be set first)

install_import_hook("bert_jax", "beartype.beartype")

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets that lies beside a checkout of ours; tests that need it skip without it."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real data at {SHARED_DATA}: this test needs it")
    return SHARED_DATA


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus directory of 300 documents in a language of 60 words in which each word tells much of the next."""
    import numpy as np

    from bert_jax.data.corpus import write_corpus
    from bert_jax.data.wordpiece import WordPiece

    words = [f"w{chr(97 + i // 10)}{chr(97 + i % 10)}" for i in range(60)]
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words], lowercase=True)
    rng = np.random.default_rng(0)

    def document() -> list[list[int]]:
        topic = int(rng.integers(0, 6)) * 10
        sentences = []
        for _ in range(rng.integers(3, 12)):
            start, length = rng.integers(0, 10), rng.integers(4, 12)
            sentences.append([5 + topic + int(start + 3 * k) % 10 for k in range(length)])
        return sentences

    directory = tmp_path_factory.mktemp("corpus")
    train, held_out = [document() for _ in range(260)], [document() for _ in range(40)]
    write_corpus(directory / "tiny", train, held_out, vocab_size=tokenizer.vocab_size)
    tokenizer.save(directory / "tiny" / "tokenizer")
    return directory / "tiny"
