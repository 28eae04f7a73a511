"""Workdirs and models at URLs, with checkpoints that are only files: what is fetched, pushed, and when."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

from bert_jax.data.object_cache import Copy
from bert_jax.data.object_store import Store
from bert_jax.training import pusher
from bert_jax.training.checksums import find_damage, write_sums
from bert_jax.training.stored_run import local_run, push_file, working_copy
from tests.shaky_store import Shaky, clean_stores, failing  # noqa: F401  (a fixture)

URL = "shaky://b/run"


@pytest.fixture(autouse=True)
def quick(clean_stores: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(pusher, "SECONDS", 0.02)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``machine("b")``: from now on this is another machine: with a cache of its own."""
    return lambda name: monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))


def save(directory: Path, step: int, text: str = "numbers") -> None:
    """A checkpoint, which appears as Orbax's do."""
    unnamed = directory / "checkpoints" / f"{step}.tmp"
    for name in ("params/d/0", "training/d/0", "meta/m", "metrics/m", "_CHECKPOINT_METADATA"):
        (unnamed / name).parent.mkdir(parents=True, exist_ok=True)
        (unnamed / name).write_text(f"{text} {name} of {step}")
    write_sums(unnamed)
    unnamed.rename(unnamed.with_name(str(step)))


def log(directory: Path, text: str) -> None:
    directory.mkdir(exist_ok=True)
    with (directory / "metrics.jsonl").open("a") as file:
        file.write(text + "\n")


def steps(directory: Path) -> list[int]:
    folder = directory / "checkpoints"
    return sorted(int(path.name) for path in folder.iterdir()) if folder.is_dir() else []


def stored() -> set[str]:
    return set(Store(URL).files())


def comes(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_another_machine_goes_on_from_what_was_pushed(machine: Callable[[str], None]) -> None:
    machine("a")
    with working_copy(URL) as here:
        assert here.name == "run" and not here.exists()
        log(here, "1")
        (here / "lock").write_text("process")
        (here / ".half.tmp").write_text("half")
        save(here, 10)
        comes(lambda: "checkpoints/10/SHA256SUMS" in stored())  # while the run goes on
        log(here, "2")
    there = stored()
    assert {"metrics.jsonl", "pushed_by.json", "checkpoints/10/training/d/0"} < there
    assert not there & {"lock", ".half.tmp"}
    machine("b")
    with working_copy(URL) as here:
        assert (here / "metrics.jsonl").read_text() == "1\n2\n" and steps(here) == [10]
        assert find_damage(here / "checkpoints" / "10") is None
        log(here, "3")
        save(here, 20)
    machine("a")
    with working_copy(URL) as here:
        assert (here / "metrics.jsonl").read_text() == "1\n2\n3\n" and steps(here) == [10, 20]


def test_what_keep_last_removes_goes_there_once_the_newer_one_is_whole(machine: Callable[[str], None]) -> None:
    machine("a")
    with working_copy(URL) as here:
        for step in (10, 20):
            log(here, "line")
            save(here, step)
            comes(lambda step=step: f"checkpoints/{step}/SHA256SUMS" in stored())
        Store(URL).write("checkpoints/15/params/d/0", b"of a push that was killed")
        Shaky.fails = failing("put", "checkpoints/30/SHA256SUMS", OSError("busy"))
        save(here, 30)
        shutil.rmtree(here / "checkpoints" / "10")
        comes(lambda: "checkpoints/30/params/d/0" in stored())
        assert "checkpoints/10/SHA256SUMS" in stored() and "checkpoints/30/SHA256SUMS" not in stored()
        Shaky.fails = None
        comes(lambda: not any(name.startswith("checkpoints/10/") for name in stored()))
        assert "checkpoints/30/SHA256SUMS" in stored()
    assert {name.split("/")[1] for name in stored() if name.startswith("checkpoints/")} == {"20", "30"}


def test_nothing_is_removed_there_before_the_newest_here_has_come(machine: Callable[[str], None]) -> None:
    machine("a")
    with working_copy(URL) as here:
        save(here, 10)
        save(here, 20)
    save(here, 30)  # as if it came while others were pushed
    shutil.rmtree(here / "checkpoints" / "10")
    one = pusher.Pusher(Copy(URL), ours=True)
    one._remove_old()
    assert "checkpoints/10/SHA256SUMS" in stored()
    one.push(everything=True)
    assert "checkpoints/30/SHA256SUMS" in stored() and "checkpoints/10/SHA256SUMS" not in stored()


def test_the_sums_come_last_and_the_metrics_before_their_checkpoint(machine: Callable[[str], None]) -> None:
    machine("a")
    order: list[str] = []
    Shaky.fails = lambda done, path: order.append(path.removeprefix("/b/run/")) if done == "put" else None
    with working_copy(URL) as here:
        log(here, "line")
        save(here, 10)
    assert order.index("metrics.jsonl") < min(order.index(name) for name in order if name.startswith("checkpoints"))
    assert [name for name in order if name.startswith("checkpoints")][-1] == "checkpoints/10/SHA256SUMS"


@pytest.mark.parametrize("how", ["not whole", "damaged", "file missing"])
def test_a_checkpoint_that_is_not_whole_is_passed_over(
    how: str, machine: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    machine("a")
    with working_copy(URL) as here:
        for step in (10, 20):
            save(here, step)
    if how == "not whole":
        Store(URL).remove("checkpoints/20/SHA256SUMS")
    elif how == "damaged":
        Store(URL).write("checkpoints/20/training/d/0", b"numbers training/d/1 of 20")
    else:
        Store(URL).remove("checkpoints/20/training/d/0")
    machine("b")
    said = {"damaged": "is not as it was written", "file missing": "is missing"}
    with working_copy(URL) as here:
        assert steps(here) == [10]
        error = capsys.readouterr().err
        if how == "not whole":
            assert error == ""
        else:
            assert error == f"{URL}/checkpoints/20: training/d/0 {said[how]}; passed over\n"
        save(here, 20)  # the same step again
    machine("c")
    with working_copy(URL) as here:
        assert steps(here) == [10, 20] and find_damage(here / "checkpoints" / "20") is None
    assert capsys.readouterr().err == ""


def test_where_no_checkpoint_is_whole_it_stops(machine: Callable[[str], None]) -> None:
    machine("a")
    with working_copy(URL) as here:
        save(here, 10)
    Store(URL).write("checkpoints/10/params/d/0", b"other")
    machine("b")
    said = r"^shaky://b/run/checkpoints/10: params/d/0 is not as it was written, and no older one to use is whole; copy"
    with pytest.raises(ValueError, match=said), working_copy(URL):
        pass
    with pytest.raises(ValueError, match=said):
        local_run(URL)


def test_a_failing_store_is_said_once_and_raised_at_the_end(
    machine: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    machine("a")
    tries: list[str] = []

    def fails(done: str, path: str) -> Exception | None:
        if done == "put":
            tries.append(path)
            return ConnectionError("reset")
        return None

    Shaky.fails = fails
    said = r"ConnectionError: reset; what is not there is in \S+/run, and the same command here pushes it$"
    with pytest.raises(OSError, match=said), working_copy(URL) as here:
        log(here, "1")
        save(here, 10)
        comes(lambda: len(tries) >= 3)
        assert capsys.readouterr().err == (
            "shaky://b/run: ConnectionError: reset; training goes on, and pushing is tried again until it works\n"
        )
    Shaky.fails = None
    with working_copy(URL) as here:  # nothing is lost
        assert steps(here) == [10]
    assert {"metrics.jsonl", "checkpoints/10/SHA256SUMS"} < stored()


def test_how_a_run_ends_is_told_to_who_started_it(
    machine: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    machine("a")
    with pytest.raises(SystemExit) as stopped, working_copy(URL) as here:
        log(here, "1")
        raise SystemExit(143)
    assert stopped.value.code == 143 and "metrics.jsonl" in stored()
    with pytest.raises(FloatingPointError), working_copy(URL) as here:
        log(here, "2")
        raise FloatingPointError("loss nan")
    assert Store(URL).read("metrics.jsonl") == b"1\n2\n"
    with pytest.raises(KeyboardInterrupt), working_copy(URL) as here:
        log(here, "3")
        raise KeyboardInterrupt
    assert Store(URL).read("metrics.jsonl") in (b"1\n2\n", b"1\n2\n3\n")
    Shaky.fails = failing("put", "", OSError("gone"))
    with pytest.raises(OSError, match="gone; what is not there"), working_copy(URL) as here:
        log(here, "4")
        raise SystemExit(143)
    capsys.readouterr()
    with pytest.raises(FloatingPointError), working_copy(URL) as here:
        raise FloatingPointError("loss nan")
    assert "gone; what is not there is in" in capsys.readouterr().err


def test_after_a_crash_the_copy_may_be_ahead_and_is_kept(
    machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("a")
    with working_copy(URL) as here:
        log(here, "1")
        save(here, 10)
    log(here, "2")  # what a kill kept from being pushed
    save(here, 20)
    shutil.rmtree(here / "checkpoints" / "10")
    monkeypatch.setattr(Shaky, "get_file", None)  # so nothing is fetched
    with working_copy(URL) as here:
        assert steps(here) == [20] and (here / "metrics.jsonl").read_text() == "1\n2\n"
    assert {name.split("/")[1] for name in stored() if name.startswith("checkpoints/")} == {"20"}


def test_who_takes_over_wins(machine: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    machine("a")
    with (
        pytest.raises(
            OSError, match=r"^shaky://b/run has been taken over by process \d+ on \S+; what it has not is in"
        ),
        working_copy(URL) as first,
    ):
        log(first, "1")
        save(first, 10)
        comes(lambda: "checkpoints/10/SHA256SUMS" in stored())
        machine("b")
        with working_copy(URL) as second:
            log(second, "of b")
            save(second, 20)
        save(first, 30)
        comes(lambda: "nothing more is pushed" in capsys.readouterr().err)
    assert Store(URL).read("metrics.jsonl") == b"1\nof b\n" and "checkpoints/30/SHA256SUMS" not in stored()
    machine("a")
    with working_copy(URL) as first:
        assert steps(first) == [10, 20] and (first / "metrics.jsonl").read_text() == "1\nof b\n"
    said = capsys.readouterr().err
    assert "was gone on with elsewhere, or deleted: checkpoint 30 of this machine, which never got there" in said
    assert steps(first.with_name("superseded_1")) == [10, 30]


def test_a_run_that_was_deleted_there_begins_anew(machine: Callable[[str], None]) -> None:
    machine("a")
    with working_copy(URL) as here:
        log(here, "1")
        save(here, 10)
        save(here, 20)
    Store(URL).remove("checkpoints/20")
    with working_copy(URL) as here:
        assert steps(here) == [10]
    Store(URL).remove("")
    with working_copy(URL) as here:
        assert not here.exists() or not any(path.is_file() for path in here.rglob("*"))


def test_one_run_a_machine_and_one_that_is_refused_claims_nothing(
    machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("a")
    with working_copy(URL) as here:
        log(here, "1")
        with pytest.raises(ValueError, match=r"is in use by process \d+ on \S+; wait for it"), working_copy(URL):
            pass
        machine("b")
        with pytest.raises(ValueError, match="a config that does not fit"), working_copy(URL):
            raise ValueError("a config that does not fit")
        save(here, 10)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    said = r"^shaky://b/run cannot be the workdir of 2 processes, which need one directory that all share; mount it"
    with pytest.raises(ValueError, match=said), working_copy(URL):
        pass
    with working_copy("runs/x") as path:
        assert path == Path("runs/x")


def test_readers_fetch_what_they_need(machine: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    machine("a")
    with working_copy(URL) as here:
        log(here, "1")
        (here / "tensorboard").mkdir()
        (here / "tensorboard" / "events").write_text("large")
        for step in (10, 20, 30):
            save(here, step)
        comes(lambda: "checkpoints/30/SHA256SUMS" in stored())
        assert local_run(URL) == here  # of this machine's run: at once
        machine("b")
        copy = local_run(URL)
        assert copy != here and steps(copy) == [30] and not (copy / "checkpoints/30/training").exists()
        assert not (copy / "tensorboard").exists() and (copy / "metrics.jsonl").exists()
        machine("c")
        assert steps(local_run(URL, 20)) == [20]
        with pytest.raises(ValueError, match=r"^step=25: shaky://b/run has the checkpoints 30, 20, 10; give one$"):
            local_run(URL, 25)
        assert steps(local_run(URL, every=True)) == [10, 20, 30]
        Store(URL).write("checkpoints/30/params/d/0", b"other")
        Store(URL).write("checkpoints/20/training/d/0", b"nobody reads it")
        assert steps(local_run(URL)) == [10, 20]
        assert capsys.readouterr().err.startswith("shaky://b/run/checkpoints/30: params/d/0 is not as it was written")
    with working_copy(URL) as here:  # c goes on: what it read is completed
        assert steps(here) == [10]
        assert all((here / "checkpoints" / str(step) / "training/d/0").is_file() for step in steps(here))
    with pytest.raises(FileNotFoundError, match=r"^shaky://b/none: nothing is there; check bucket and path$"):
        local_run("shaky://b/none")


def test_a_report_goes_there(machine: Callable[[str], None]) -> None:
    machine("a")
    with working_copy(URL) as here:
        log(here, "1")
    (local_run(URL) / "report.html").write_text("page")
    push_file(URL, "report.html")
    push_file("runs/x", "report.html")
    assert Store(URL).read("report.html") == b"page"
    machine("b")
    assert (local_run(URL) / "report.html").read_text() == "page"
