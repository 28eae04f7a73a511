"""A corpus by Apache Beam: the costly part of a build on many machines, the same to the byte as on one.

Beam's workers read, split and tokenise (`read_units` and `UnitEncoder`, as here), each input by itself, and write
its units as one part file. Then the process that started the pipeline appends the parts in order, as it appends
what its own processes encode. So there is as much parallelism as there are inputs, and appending costs what
reading and writing that many token ids costs. Workers need bert_jax, the inputs and the parts' directory, under
the same names as the starting process.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import socket
import sys
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

try:
    import apache_beam as beam
    from apache_beam.io.filesystem import BeamIOError, CompressionTypes
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
    from apache_beam.runners.portability.portable_runner import PortableRunner
    from apache_beam.runners.runner import PipelineState
except ImportError as missing:
    raise ImportError(f"--runner beam needs Apache Beam ({missing}): pip install '.[beam]'") from None

from bert_jax.data.corpus_builder import EncodeAll
from bert_jax.data.corpus_parts import read_part, write_part
from bert_jax.data.corpus_worker import EncodedUnit, UnitEncoder
from bert_jax.data.documents import Input, read_units
from bert_jax.data.object_store import is_url
from bert_jax.data.text_files import Problems

_PLAIN = CompressionTypes.UNCOMPRESSED  # else Beam decides by the end of the name
# In this process. Beam's own default, DirectRunner, downloads a program first.
_DEFAULT_RUNNER = "FnApiRunner"


def encode_on_beam(options: str, parts_dir: str) -> EncodeAll:
    """`encode_all` for `corpus_builder.build`: a Beam pipeline with `options`, as on a command line.

    parts_dir: of this build alone, a folder that all workers share or a URL such as gs://BUCKET/parts; emptied of
      the parts that a killed build left, and at the end. ValueError for options that Beam refuses, and for a
      directory with anything else in it.
    """
    parsed = _parse(options)
    if any(sign in parts_dir for sign in "*?["):
        raise ValueError(f"parts_dir {parts_dir} has one of * ? [, which Beam takes for a pattern; choose another")
    _old_parts(parts_dir)  # or an error, before anything is done

    def encode_all(
        names: list[str] | Iterable[Input], encoder: UnitEncoder, problems: Problems, formats: dict[str, int]
    ) -> Iterator[EncodedUnit]:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("documents in memory cannot go to Beam's workers; write them to files, or do without Beam")
        files = cast(list[str], names)
        FileSystems.delete(_old_parts(parts_dir))
        # Under a name of its own, so that a worker that outlived a killed build is no harm.
        prefix = FileSystems.join(parts_dir, f"part-{uuid.uuid4().hex}-")
        try:
            _run(parsed, files, encoder, prefix)
            for index, name in enumerate(files):
                yield from _read(_part(prefix, index), name, problems, formats)
        finally:
            _remove_parts(parts_dir, prefix)

    return encode_all


class EncodeInput(beam.DoFn):
    """(index, name of an input) -> its part file, of which a half or a second one is never seen.

    The encoder with its tokenizer comes pickled with this object: once for each of a worker's threads.
    """

    def __init__(self, encoder: UnitEncoder, prefix: str):
        self.encoder, self.prefix = encoder, prefix

    def process(self, element: tuple[int, str]) -> None:
        index, name = element
        part = _part(self.prefix, index)
        if FileSystems.exists(part):
            return  # an attempt that was thought lost has written it
        if not (name.startswith("tfds:") or is_url(name) or Path(name).exists()):
            raise _not_seen(name)
        problems, formats = Problems(), {}
        units = map(self.encoder, read_units([name], self.encoder.reading, problems, formats))
        temporary = f"{part}.{uuid.uuid4().hex}.tmp"
        try:
            with FileSystems.create(temporary, compression_type=_PLAIN) as stream:
                write_part(stream, name, units, problems, formats)
            FileSystems.rename([temporary], [part])
        except BaseException:
            with contextlib.suppress(BeamIOError):
                FileSystems.delete([temporary])
            raise


def _parse(text: str) -> PipelineOptions:
    """ValueError for what is no option, and for values that Beam or the runner refuses."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"--beam_options {text!r}: {error}; quote it once for the shell") from None
    for word in words:
        if not word.startswith("--"):
            raise ValueError(f"--beam_options has {word!r}, which is no option; write each as --name or --name=value")
    options = PipelineOptions(words)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):  # usage, of hundreds of lines
            everything = options.get_all_options(retain_unknown_options=True)
    except SystemExit:
        raise ValueError(f"--beam_options {text!r}: {_last_line(errors.getvalue()).partition('error: ')[2]}") from None
    try:
        pipeline = _pipeline(options)
    except Exception as error:  # whatever the checks of the runner raise
        raise ValueError(f"--beam_options {text!r}: {' '.join(str(error).split())}") from None
    shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)  # it was only to ask
    unknown = everything.keys() - PipelineOptions([]).get_all_options().keys()
    if unknown and not isinstance(pipeline.runner, PortableRunner):  # Flink's and Spark's servers know more
        names = ", ".join(f"--{name}" for name in sorted(unknown))
        raise ValueError(f"--beam_options has {names}, unknown to Beam's {type(pipeline.runner).__name__}")
    return options


def _pipeline(options: PipelineOptions) -> beam.Pipeline:
    if options.view_as(StandardOptions).runner is None:
        options.view_as(StandardOptions).runner = _DEFAULT_RUNNER
    return beam.Pipeline(options=options)


def _run(options: PipelineOptions, names: list[str], encoder: UnitEncoder, prefix: str) -> None:
    """Write all parts. RuntimeError where Beam gives up, with the last line of what it says."""
    # In a file: the description of a job is limited, and workers that do not see the directory fail at once.
    with FileSystems.create(f"{prefix}inputs", compression_type=_PLAIN) as stream:
        stream.write(json.dumps(names).encode())
    pipeline = _pipeline(options)
    inputs = pipeline | beam.Create([f"{prefix}inputs"]) | "inputs" >> beam.FlatMap(_numbered)
    # Without it all inputs could stay with the worker that listed them.
    _ = inputs | "spread" >> beam.Reshuffle() | "encode" >> beam.ParDo(EncodeInput(encoder, prefix))
    try:
        result = pipeline.run()
        try:
            state = result.wait_until_finish()
        except KeyboardInterrupt:
            with contextlib.suppress(Exception):
                result.cancel()
            raise
    except Exception as error:  # of the runner, of the network, of our own code on a worker
        reason = _last_line(str(error)) or type(error).__name__
        if reason.startswith("KeyboardInterrupt"):  # of which Beam's own runner makes an error
            raise KeyboardInterrupt from None
        raise RuntimeError(f"Beam: {reason}") from error
    if state != PipelineState.DONE:
        raise RuntimeError(f"Beam: the job ended as {state}; see the runner's own log")


def _numbered(path: str) -> Iterator[tuple[int, str]]:
    if not FileSystems.exists(path):
        raise _not_seen(path)
    with FileSystems.open(path, compression_type=_PLAIN) as stream:
        yield from enumerate(json.loads(stream.read()))


def _not_seen(name: str) -> FileNotFoundError:
    return FileNotFoundError(
        f"worker {socket.gethostname()} does not see {name}, which the starting process sees; use a directory that "
        "all machines share, by its absolute name"
    )


def _read(place: str, name: str, problems: Problems, formats: dict[str, int]) -> Iterator[EncodedUnit]:
    if not FileSystems.exists(place):
        raise ValueError(f"{place} is not here though a worker wrote it; give a --parts_dir that all machines share")
    with FileSystems.open(place, compression_type=_PLAIN) as stream:
        yield from read_part(stream, place, name, problems, formats)


def _part(prefix: str, index: int) -> str:
    return f"{prefix}{index:06}"


def _old_parts(parts_dir: str) -> list[str]:
    """What a killed build left. ValueError where there is anything else, or no such file system."""
    found = _files(FileSystems.join(parts_dir, "*"))
    for path in found:
        if not FileSystems.split(path)[1].startswith("part-"):
            raise ValueError(f"{path} is no part of a corpus; give a --parts_dir of this build alone")
    return found


def _remove_parts(parts_dir: str, prefix: str) -> None:
    """Remove the parts of this build. What cannot be removed is told, but is no reason to build again."""
    try:
        FileSystems.delete(_files(f"{prefix}*"))
    except BeamIOError as error:
        print(f"parts that could not be removed from {parts_dir}: {error}", file=sys.stderr)
    with contextlib.suppress(OSError):
        os.rmdir(parts_dir)  # where it is a folder


def _files(pattern: str) -> list[str]:
    return [entry.path for entry in FileSystems.match([pattern])[0].metadata_list]


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
