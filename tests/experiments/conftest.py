"""What the tests of comparisons with PyTorch share."""

from pathlib import Path

import pytest

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [
    *[
        "the",
        "man",
        "plays",
        "a",
        "red",
        "guitar",
        "in",
        "rain",
        "dog",
        "runs",
        "on",
        "green",
        "grass",
        "who",
        "what",
        "london",
        "paris",
    ]
]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face directory of 2 layers x 32 with random weights and a small vocabulary."""
    torch = pytest.importorskip("torch", reason="the peer needs the extra `peers`", exc_type=ImportError)
    transformers = pytest.importorskip("transformers", reason="the peer needs the extra `peers`", exc_type=ImportError)
    transformers.utils.logging.disable_progress_bar()
    directory = tmp_path_factory.mktemp("encoder")
    torch.set_num_threads(1)  # threads cost such a small model more than they save
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=len(PIECES), max_position_embeddings=128, **sizes)
    transformers.BertModel(config).save_pretrained(directory)
    (directory / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    transformers.BertTokenizer(str(directory / "vocab.txt"), do_lower_case=True).save_pretrained(directory)
    return directory
