"""All measurements one after another, each in processes of its own, with what is left of the time.

A process that dies or takes too long costs its own figures; those that it had found stay.
"""

import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import NamedTuple

import msgspec

from agent_layer.infra import LineReader, start_supervised
from trainer_adapter.evidence.cases import CASES, REHEARSED
from trainer_adapter.evidence.page import summarize
from trainer_adapter.evidence.records import Evidence, Fault, Heartbeat, Line, Machine, Measured, Request

_LOOK_SECONDS = 0.5
_TAIL_LENGTH = 200
_NEVER = [
    "engines of vLLM and SGLang, and a job of trainer and engines on Ray (`tests/gpu/test_main_ppo.py` is two steps)",
    "weights over nccl to engines with GPUs of their own (`separate_async`)",
    "learning: weights and rewards are random",
]


class Place(NamedTuple):
    """Where processes run."""

    num_processes: int = 1
    """On this machine: one for each GPU; on a CPU as many as are to rehearse."""
    num_machines: int = 1
    machine: int = 0
    """Number of this one, from 0; the first has the results."""
    address: str = ""
    """HOST:PORT of the first machine. The next ports are used, too."""


def collect(
    place: Place, directory: Path, seconds: float, report: Callable[[str], None], *, is_rehearsal: bool
) -> Evidence:
    """Measure all cases; return what was found, in the order of finding.

    Args:
        place: of the processes.
        directory: takes logs; models and sockets are in a scratch directory of the system.
        seconds: limit of the whole.
        report: gets lines of progress.
        is_rehearsal: whether tiny models take the place of real ones.
    """
    began, found = time.monotonic(), list[Measured]()
    scratch = Path(mkdtemp(prefix="al-"))  # a short path: it has a socket
    try:
        for number, request in enumerate(list_requests(scratch, is_rehearsal=is_rehearsal)):
            left = seconds - (time.monotonic() - began)
            report(f"{request.case.name}, trained in {request.precision}: {left:.0f} s are left")
            log = directory / f"{number}-{request.case.name}-{request.precision}.log"
            for one in run_process(request, _command(place, number, request), log, left):
                if isinstance(one, Heartbeat):
                    report(f"  {one.doing}")
                elif not isinstance(one, Machine) or not any(isinstance(other, Machine) for other in found):
                    found.append(one)
                    report(f"  {summarize(one)}")
            rmtree(request.directory, ignore_errors=True)
    finally:
        rmtree(scratch, ignore_errors=True)
    return Evidence(
        date=datetime.now(UTC).date().isoformat(),
        seconds=time.monotonic() - began,
        is_rehearsal=is_rehearsal,
        found=found,
        not_checked=[*["whatever a GPU changes: this was a rehearsal on a CPU"][: int(is_rehearsal)], *_NEVER],
    )


def list_requests(scratch: Path, *, is_rehearsal: bool) -> list[Request]:
    """Return what processes are to measure: precisions with the smallest model, then updates, long ones last."""
    cases = REHEARSED if is_rehearsal else CASES
    parts = [(cases[0], "float32", ["float32", "bfloat16"], False), (cases[0], "bfloat16", ["bfloat16"], True)]
    parts += [(case, "bfloat16", [], True) for case in cases[1:]]
    return [
        Request(
            case=case,
            precision=precision,
            engines=engines,
            has_updates=has_updates,
            directory=str(scratch / str(number)),
            results=str(scratch / f"{number}.jsonl"),
        )
        for number, (case, precision, engines, has_updates) in enumerate(parts)
    ]


def run_process(request: Request, command: list[str], log: Path, seconds: float) -> Iterator[Measured]:
    """Yield what a process finds, as it appends it to the file of results; a fault where it fails or takes too long.

    Args:
        request: names directory and file.
        command: program and arguments.
        log: gets its output.
        seconds: limit.
    """
    Path(request.directory).mkdir()
    reader = LineReader(Path(request.results), Line)
    process = start_supervised(command, {"OMP_NUM_THREADS": "1"}, log)
    deadline, doing = time.monotonic() + seconds, "start"
    try:
        while process.is_running and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            for line in reader.read_on():
                doing = line.found.doing if isinstance(line.found, Heartbeat) else doing
                yield line.found
        yield from (line.found for line in reader.read_on())
        status = process.process.poll()
    finally:
        process.stop()
    if status != 0:
        end = f"ended with status {status}" if status is not None else f"took longer than the {seconds:.0f} s left"
        yield Fault(what=doing, why=f"{end}; {log} ends with: {' '.join(process.log_tail.split())[-_TAIL_LENGTH:]}")


def _command(place: Place, number: int, request: Request) -> list[str]:
    module = ["-m", "trainer_adapter.evidence.measure", msgspec.json.encode(request).decode()]
    if place.num_processes * place.num_machines == 1:
        return [sys.executable, *module]
    if place.num_machines == 1:
        meeting = ["--standalone"]
    else:
        host, _, port = place.address.rpartition(":")
        meeting = [f"--nnodes={place.num_machines}", f"--node-rank={place.machine}"]
        meeting += [f"--master-addr={host}", f"--master-port={int(port) + number}"]
    torchrun = ["-m", "torch.distributed.run", *meeting, f"--nproc-per-node={place.num_processes}"]
    return [sys.executable, *torchrun, *module]
