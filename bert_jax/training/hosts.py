"""Several processes as one run: how they meet, whether they agree, and how they stop together."""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import time
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax.tasks.task import Stream
from bert_jax.training.settings import differences

# A process that has not been heard of for so long is dead; the others are then aborted with that message.
HEARTBEAT_SECONDS = 20
# One that ends, by an error say, waits so long for the others, which its connection's end stops.
SHUTDOWN_SECONDS = 20
# Within it all must have started; a large pod may need more.
MEETING_SECONDS = 60
AUTO = "auto"
REMEDY = "start all of them, with one coordinator and one num_processes"


def join(
    coordinator: str,
    num_processes: int | None = None,
    process_id: int | None = None,
    meeting_seconds: int = MEETING_SECONDS,
) -> None:
    """Makes this process one of several; before any other use of JAX.

    Args:
        coordinator: HOST:PORT of process 0, or ``AUTO``: what ``jax.distributed`` finds out of SLURM, Open MPI, GKE
            or a TPU pod, which then tell the other two as well.
        num_processes, process_id: how many there are, and which of them (from 0) this is.
        meeting_seconds: how long to wait for the others.

    Raises:
        ValueError: arguments that do not belong together, or processes that did not come in time.
    """
    if coordinator == AUTO:
        address = None
        if num_processes is not None or process_id is not None:
            raise ValueError("coordinator=auto: the cluster says how many processes there are; give no numbers")
    else:
        address = coordinator
        if num_processes is None or process_id is None:
            raise ValueError(f"coordinator={coordinator} needs num_processes and process_id; or give coordinator=auto")
        if not 0 <= process_id < num_processes:
            raise ValueError(
                f"process_id={process_id} of num_processes={num_processes}: they are counted from 0 to"
                f" {num_processes - 1}"
            )
        host, colon, port = coordinator.rpartition(":")
        if not (host and colon and port.isdecimal()):
            raise ValueError(f"coordinator={coordinator!r} must be HOST:PORT of process 0, or auto")
    if address:
        text = f"process {process_id}: waiting up to {meeting_seconds} s for {num_processes} processes at {address}"
        print(text, file=sys.stderr)
    if address and process_id:
        _wait_for(address, meeting_seconds)
    try:
        jax.distributed.initialize(
            address,
            num_processes,
            process_id,
            initialization_timeout=meeting_seconds,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )
    except (RuntimeError, ValueError) as error:  # where JAX does not end the process itself, with its reason
        reason = " ".join(str(error).split())[:300]
        where = address or "the address that the cluster gives"
        raise ValueError(
            f"the processes did not meet at {where} within {meeting_seconds} s ({reason}); {REMEDY}"
        ) from None


def leave() -> None:
    """Ends the connection once all are there; what follows each process does for itself."""
    if jax.process_count() > 1:
        jax.distributed.shutdown()


def check_agreement(config: dict[str, Any], stream: Stream) -> None:
    """Every process raises the same error where one has another config, or would read other data.

    Args:
        config: JSON values. stream: of the first phase; its first batch is compared.

    Raises:
        ValueError: which process differs from process 0, and in what.
    """
    digest = hashlib.sha256()
    for name, values in sorted(stream.batch(0).items()):
        digest.update(name.encode() + np.ascontiguousarray(values).tobytes())
    everything = {"config": config, "jax": jax.__version__, "first_batch": digest.hexdigest()}
    said = [json.loads(text) for text in _all_say(json.dumps(everything, sort_keys=True))]
    for process, other in enumerate(said):
        if changes := differences(said[0], other):
            raise ValueError(
                f"process {process} of {len(said)} differs from process 0 ({'; '.join(changes)[:600]}); give all"
                " processes the same config, data and versions"
            )


def _wait_for(address: str, seconds: float) -> None:
    """Until process 0 listens: JAX itself would end this process from C++, with a page of its stack."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ValueError(f"nobody listens at {address} after {seconds} s ({error}); {REMEDY}") from None
            time.sleep(0.5)


def _all_say(text: str) -> list[str]:
    """The texts of all processes, in their order."""
    own = np.frombuffer(text.encode(), np.uint8)
    lengths = multihost_utils.process_allgather(np.int32(len(own)))
    padded = np.zeros(int(lengths.max()), np.uint8)
    padded[: len(own)] = own
    texts = multihost_utils.process_allgather(padded)
    return [bytes(text[:length]).decode() for text, length in zip(texts, lengths, strict=True)]
