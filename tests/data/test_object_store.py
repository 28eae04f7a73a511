"""URLs: copies that are whole or not there, fetched once, pushed with the mark last; errors in one line."""

import gzip
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from bert_jax.data.documents import Reading, expand_inputs, read_units, total_bytes
from bert_jax.data.object_cache import Copy, cache_directory, check_nothing_at, local_copy, local_output
from bert_jax.data.object_store import Store, glob_urls, is_url, name_of, open_url, push
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.data.wordpiece import WordPiece
from tests.shaky_store import Shaky, clean_stores, failing  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("clean_stores")


def write(url: str, **files: str) -> None:
    for name, text in files.items():
        Store(url).write(name.replace("__", "/").replace("_dot_", "."), text.encode())


def contents(directory: Path) -> dict[str, str]:
    return {p.relative_to(directory).as_posix(): p.read_text() for p in directory.rglob("*") if p.is_file()}


def test_what_a_url_is() -> None:
    assert is_url("gs://b/x") and is_url("s3://b") and is_url("file:///tmp")
    assert not is_url("/tmp/x") and not is_url("tfds:lm1b") and not is_url(Path("a/b")) and not is_url("C:/x")
    with pytest.raises(ValueError, match=r"^gs:/b/x was a URL before it became a Path; give it as a string"):
        is_url(Path("gs://b/x"))
    assert [name_of(url) for url in ("gs://b/runs/base/", "s3://b", "s3://b/.x y")] == ["base", "b", "x_y"]


@pytest.mark.parametrize("scheme", ["memory://bucket", "file://{tmp}/bucket"])
def test_a_copy_follows_what_is_at_the_url(scheme: str, tmp_path: Path) -> None:
    url = scheme.format(tmp=tmp_path) + "/model"
    write(url, a_dot_txt="one", sub__b="two")
    copy = local_copy(url)
    assert contents(copy) == {"a.txt": "one", "sub/b": "two"}
    assert copy.name == "model" and copy.parent.parent == tmp_path / "cache" / "bert_jax" / "objects"
    kept = (copy / "a.txt").stat().st_mtime_ns
    write(url, sub__b="TWO", c="three")
    Store(url).remove("sub/none")
    assert contents(local_copy(url)) == {"a.txt": "one", "sub/b": "TWO", "c": "three"}
    assert (copy / "a.txt").stat().st_mtime_ns == kept  # not fetched again
    Store(url).remove("sub")
    (copy / "a.txt").write_text("changed here")
    assert contents(local_copy(url)) == {"a.txt": "one", "c": "three"} and not (copy / "sub").exists()
    with pytest.raises(FileNotFoundError, match=r"none: nothing is there; check bucket and path$"):
        local_copy(url + "/none")


def test_a_url_of_one_file_and_of_a_tokenizer() -> None:
    write("memory://b", words_dot_txt="text")
    assert local_copy("memory://b/words.txt").read_text() == "text"
    write("memory://b", words_dot_txt="other")
    assert local_copy("memory://b/words.txt").read_text() == "other"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good"]
    with local_output("memory://b/tokenizer") as place:
        WordPiece(pieces, lowercase=True).save(place)
    assert load_tokenizer("memory://b/tokenizer").pieces == pieces
    assert load_tokenizer("memory://b/tokenizer/vocab.txt", lowercase=True).pieces == pieces


def test_an_interrupted_fetch_leaves_whole_files_and_goes_on() -> None:
    write("shaky://b/m", a="1" * 1000, b="2" * 1000)
    Shaky.fails = failing("get", "/b/m/b", ConnectionError("reset by peer"))
    with pytest.raises(OSError, match=r"^shaky://b/m: ConnectionError: reset by peer$"):
        local_copy("shaky://b/m")
    copy = Copy("shaky://b/m")
    assert copy.files() == []  # neither a half one nor a temporary one
    Shaky.fails = None
    assert len(contents(local_copy("shaky://b/m"))) == 2
    (copy.entry / "index.json").write_text("{")  # as a full disk leaves it: all is fetched again
    assert len(contents(local_copy("shaky://b/m"))) == 2 and len(copy.index() or {}) == 2


def test_a_name_that_would_leave_the_copy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"/b/m/../../x": {"type": "file", "size": 1, "created": 1}}
    monkeypatch.setattr(MemoryFileSystem, "find", lambda *_, **__: found)
    with pytest.raises(ValueError, match=r"^memory://b/m has a file named '../../x', which would lie outside"):
        local_copy("memory://b/m")


def test_the_mark_comes_last_and_an_old_one_goes_first(tmp_path: Path) -> None:
    store, order = Store("shaky://b/c"), []
    for name in ("x.bin", "corpus.json"):
        (tmp_path / name).write_text(name)
    Shaky.fails = lambda done, path: order.append(path) if done == "put" else None
    push(tmp_path, store, "corpus.json")
    assert order == ["/b/c/x.bin", "/b/c/corpus.json"]
    write("shaky://b/c", other="kept", sub__old="stale")
    Shaky.fails = failing("put", "x.bin", OSError("no space"))
    with pytest.raises(OSError, match="no space"):
        push(tmp_path, store, "corpus.json", replacing=("sub",))
    assert set(store.files()) == {"x.bin", "other"}  # nothing says that what is there is whole
    Shaky.fails = None
    push(tmp_path, store, "corpus.json", replacing=("sub",))
    assert set(store.files()) == {"x.bin", "corpus.json", "other"}


def test_a_kill_while_a_file_is_put_into_a_directory_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/bucket/m"
    write(url, SHA256SUMS="old")

    def half(self: LocalFileSystem, lpath: str, rpath: str, **kwargs: Any) -> None:
        Path(rpath).write_text("hal")
        raise KeyboardInterrupt

    (tmp_path / "new").write_text("half of it")
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "put_file", half)
        with pytest.raises(KeyboardInterrupt):
            Store(url).put([tmp_path / "new"], ["SHA256SUMS"])
    assert contents(local_copy(url)) == {"SHA256SUMS": "old"}
    Store(url).put([tmp_path / "new"], ["SHA256SUMS"])
    assert Store(url).read("SHA256SUMS") == b"half of it"


def test_output_is_pushed_with_patience_and_kept_where_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    failures = [OSError("busy"), OSError("busy"), None]
    Shaky.fails = lambda done, path: failures.pop(0) if done == "put" else None
    with local_output("shaky://b/out.txt") as path:
        path.write_text("done")
    assert Store("shaky://b").read("out.txt") == b"done" and not path.exists()
    assert capsys.readouterr().err.count("trying again") == 1
    Shaky.fails = failing("put", "", OSError("gone"))
    with (
        pytest.raises(OSError, match=r"shaky://b/other: OSError: gone; what was written is whole in .*/other: copy"),
        local_output("shaky://b/other") as path,
    ):
        path.write_text("done")
    assert path.read_text() == "done"
    with pytest.raises(KeyError), local_output("shaky://b/other") as path:
        assert not path.exists()
        path.write_text("half")
        raise KeyError
    assert not path.exists()
    Shaky.fails = None
    check_nothing_at("shaky://b/other")
    with pytest.raises(ValueError, match=r"^shaky://b/out.txt exists; give another --output or delete it$"):
        check_nothing_at("shaky://b/out.txt")


def test_errors_are_one_line_and_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme, package, extra in (("gs", "gcsfs", "gcs"), ("s3", "s3fs", "s3")):
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, scheme, raising=False)
        said = rf"^{scheme}://b/x: the package for {scheme}:// is not installed; pip install '.\[{extra}\]'$"
        with pytest.raises(ValueError, match=said):
            Store(f"{scheme}://b/x")
    with pytest.raises(ValueError, match=r"^nothing://x: Protocol not known: nothing; give gs://, s3:// or a local"):
        Store("nothing://x")
    for error in (PermissionError("no"), OSError("Forbidden: b/x"), RuntimeError("Unable to locate\ncredentials")):
        Shaky.fails = failing("find", "", error)
        with pytest.raises(PermissionError, match=r"^shaky://b/x: no permission \(.*\); give this machine credentials"):
            Store("shaky://b/x").files()
    Shaky.fails = failing("find", "", KeyError("odd"))
    with pytest.raises(OSError, match=r"^shaky://b/x: KeyError: 'odd'$"):
        Store("shaky://b/x").files()


def fetch(url: str, cache: str, ready: Any, results: Any) -> None:
    os.environ["XDG_CACHE_HOME"] = cache
    from bert_jax.data import object_cache

    got: list[str] = []
    real = Store.get

    def counted(self: Store, names: Any, targets: Any) -> None:
        got.extend(names)
        real(self, names, targets)

    Store.get = counted  # type: ignore[method-assign]
    ready.wait()
    directory = object_cache.local_copy(url)
    results.put((len(got), len(contents(directory))))


def test_of_two_processes_at_once_one_fetches(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket/m"
    write(url, **{f"f{number}": "x" * 100_000 for number in range(50)})
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(2), context.Queue()
    given = (url, str(tmp_path / "cache"), ready, results)
    both = [context.Process(target=fetch, args=given) for _ in range(2)]
    for process in both:
        process.start()
    found = sorted(results.get(timeout=60) for _ in both)
    for process in both:
        process.join()
    assert found == [(0, 50), (50, 50)]


LINES = [json.dumps({"text": f"This is text number {number}. It has two sentences."}) for number in range(300)]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_texts_are_streamed_as_from_files(suffix: str, tmp_path: Path) -> None:
    for part in range(2):
        content = "\n".join(LINES[part::2]).encode()
        content = gzip.compress(content) if suffix else content
        (tmp_path / f"{part}.jsonl{suffix}").write_bytes(content)
        Store("memory://b/texts").write(f"deep/{part}.jsonl{suffix}", content)
    Store("memory://b/texts").write("deep/other.txt", b"not asked for")
    names = expand_inputs(f"memory://b/texts/**/*.jsonl{suffix}")
    assert (
        names
        == [f"memory:///b/texts/deep/{part}.jsonl{suffix}" for part in range(2)]
        == glob_urls(names[0]) + names[1:]
    )
    here = expand_inputs(str(tmp_path / f"*.jsonl{suffix}"))
    assert total_bytes(names) == total_bytes(here)
    reading, problems = Reading(block_bytes=4000), Problems()
    data = [
        [part.data for unit in read_units(given, reading, problems) for part in unit.parts] for given in (names, here)
    ]
    assert data[0] == data[1] and sum(map(len, data[0])) > 10_000 and not problems.counts
    assert not cache_directory().exists()
    with pytest.raises(FileNotFoundError, match=r"^--input 'memory://b/none/\*' matches no file"):
        expand_inputs("memory://b/none/*")


def test_a_store_that_fails_while_streaming_stops_and_damage_does_not() -> None:
    Store("shaky://b").write("t.txt.gz", gzip.compress("\n".join(LINES).encode())[:-100])
    problems = Problems()
    list(read_units(["shaky://b/t.txt.gz"], Reading(), problems))
    assert list(problems.counts) == ["damaged file, rest skipped"]
    assert problems.first["damaged file, rest skipped"].startswith("shaky://b/t.txt.gz:")
    Shaky.fails = failing("open", "", ConnectionError("reset"))
    with pytest.raises(RuntimeError, match=r"^cannot read shaky://b/t.txt.gz: ConnectionError: reset; start again"):
        list(read_units(["shaky://b/t.txt.gz"], Reading(), Problems()))
    Shaky.fails = None
    with open_url("shaky://b/t.txt.gz") as file:
        file.raw.file.close = lambda: None
        file.raw.file.read = lambda _: (_ for _ in ()).throw(ConnectionError("reset"))
        with pytest.raises(RuntimeError, match="reset; start again when the store answers"):
            file.read()
