"""Real S3 requests, by s3fs to a server of moto on this machine; skipped without them (s3fs, moto[server])."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("s3fs")
server = pytest.importorskip("moto.server")

from bert_jax.data.corpus import Corpus  # noqa: E402
from bert_jax.data.object_cache import local_copy  # noqa: E402
from bert_jax.data.object_store import Store  # noqa: E402
from bert_jax.data.stored_corpus import local_corpus  # noqa: E402
from bert_jax.data.wordpiece import WordPiece  # noqa: E402
from bert_jax.training.stored_run import local_run, working_copy  # noqa: E402
from experiments import build_corpus  # noqa: E402
from tests.training.test_stored_run import comes, log, save, steps  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of botocore and moto
BUCKET = "s3://bert-jax-test"


@pytest.fixture(scope="module", autouse=True)
def s3() -> Iterator[None]:
    """A server, and what tells botocore of it."""
    running = server.ThreadedMotoServer(port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        Store(BUCKET).fs.mkdir(BUCKET)
        yield
    running.stop()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_texts_and_a_corpus(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"A good film {number}. It is not bad."}) for number in range(200)]
    for part in range(2):
        content = gzip.compress("\n".join(lines[part::2]).encode())
        Store(f"{BUCKET}/texts").write(f"{part}.jsonl.gz", content)
        (tmp_path / f"{part}.jsonl.gz").write_bytes(content)
    WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good"], lowercase=True).save(tmp_path / "tokenizer")
    options = ["--tokenizer", str(tmp_path / "tokenizer"), "--workers", "1"]
    build_corpus.main(["--input", str(tmp_path / "*.gz"), "--output", str(tmp_path / "here"), *options])
    there = ["--input", f"{BUCKET}/texts/*.jsonl.gz", "--output", f"{BUCKET}/corpus", *options]
    build_corpus.main(there)
    with pytest.raises(SystemExit, match="is a finished corpus"):
        build_corpus.main(there)
    build_corpus.main([*there, "--overwrite"])
    copy = local_corpus(f"{BUCKET}/corpus")
    assert (copy / "train/tokens.bin").read_bytes() == (tmp_path / "here/train/tokens.bin").read_bytes()
    assert Corpus.open(copy).num_documents == Corpus.open(tmp_path / "here").num_documents


def test_a_run_on_two_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{BUCKET}/runs/base"
    with working_copy(url) as here:
        for step in (10, 20):
            log(here, str(step))
            save(here, step)
        comes(lambda: "checkpoints/20/SHA256SUMS" in Store(url).files())
        save(here, 30)
        for path in sorted((here / "checkpoints/10").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (here / "checkpoints/10").rmdir()
    assert {name.split("/")[1] for name in Store(url).files() if name.startswith("checkpoints/")} == {"20", "30"}
    Store(url).write("checkpoints/30/params/d/0", b"other")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    with working_copy(url) as here:
        assert steps(here) == [20] and (here / "metrics.jsonl").read_text() == "10\n20\n"
        assert "params/d/0 is not as it was written; passed over" in capsys.readouterr().err
        save(here, 30)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "reader"))
    assert steps(local_run(url)) == [30] and os.listdir(local_run(url).parent)


def test_what_is_not_there() -> None:
    with pytest.raises(FileNotFoundError, match=r"^s3://bert-jax-test/none: nothing is there"):
        local_copy(f"{BUCKET}/none")
    assert Store("s3://no-such-bucket/x").files() == {}
    with pytest.raises(FileNotFoundError, match=r"^s3://no-such-bucket/x: not found .*check bucket and path$"):
        Store("s3://no-such-bucket/x").write("a", b"")  # and none is made
