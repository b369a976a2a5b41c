"""Child processes that end when their starter ends, even if the starter is killed.

``python -m agent_layer.infra.processes.supervised [--grace=SECONDS] … COMMAND …`` runs the command in a process group
of its own. It ends the group when its own standard input closes (the kernel closes it for a parent that is killed), on
SIGTERM, or when the command ends. Meanwhile it bounds the log to which the command's output goes. Further options:

    --orphan=SECONDS   in place of --grace, where the parent was killed: it wrote nothing before the end
    --keep=DESCRIPTOR  the command inherits it
    --log=DESCRIPTOR   of the log
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent_layer.infra.files import make_private, open_private
from agent_layer.infra.processes.reaper import die_with_parent

GRACE_SECONDS = 10.0
"""Between SIGTERM and SIGKILL for a process group."""
ORPHAN_SECONDS = 1.0
"""The same for a worker whose starter was killed: what its agents run should not outlive it."""
_POLL_SECONDS = 0.05
_TAIL_LINES = 8
MAX_LOG_BYTES = 16 << 20
"""A longer log continues behind its beginning; its end goes into a file beside it."""
_HEAD_BYTES = 1 << 16
"""Of a long log these stay: how the command began, and that it was ready."""
_COPY_TURNS = 4
_ORDERED = b"."
"""Written into the lifeline of a command whose starter is there to wait for it."""


@dataclass(frozen=True)
class SupervisedProcess:
    """A running command; ``start_supervised`` starts one."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def is_running(self) -> bool:
        """Whether the command still runs."""
        return self.process.poll() is None

    @property
    def log_tail(self) -> str:
        """Last lines of the command's output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    def wait_until_up(self, is_up: Callable[[], bool], seconds: float) -> bool:
        """Wait until the command serves; False when it ended before, or the time is over."""
        deadline = time.monotonic() + seconds
        while not is_up():
            if not self.is_running or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def begin_stop(self) -> None:
        """Ask the command to end, without waiting; several can so end at the same time."""
        if self.process.stdin:
            with suppress(OSError):  # it has ended
                self.process.stdin.write(_ORDERED)
                self.process.stdin.close()

    def stop(self) -> None:
        """End the command and all that it started; returns when they are gone."""
        self.begin_stop()
        try:
            self.process.wait(GRACE_SECONDS + 5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_supervised(
    command: Sequence[str],
    variables: Mapping[str, str],
    log: Path,
    *,
    kept: int | None = None,
    orphan_seconds: float | None = None,
) -> SupervisedProcess:
    """Start a command that ends with this process.

    Args:
        command: program and arguments.
        variables: added to this process's environment.
        log: file to which its output is appended, ``MAX_LOG_BYTES`` at most; what follows its beginning is then in ``LOG.1``.
        kept: descriptor that the command inherits under its number.
        orphan_seconds: between SIGTERM and SIGKILL if this process was killed; None: ``GRACE_SECONDS``.
    """
    make_private(log.parent)
    options = [] if kept is None else [f"--keep={kept}"]
    options += [] if orphan_seconds is None else [f"--orphan={orphan_seconds:g}"]
    with open(log, "ab", opener=open_private) as output:
        process = subprocess.Popen(
            supervised_command(command, GRACE_SECONDS, "--log=1", *options),
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=() if kept is None else (kept,),
        )
    return SupervisedProcess(process, log)


def supervised_command(command: Sequence[str], grace_seconds: float = GRACE_SECONDS, *options: str) -> list[str]:
    """Return the command line of a supervisor for a command; its standard input is to be a pipe that stays open."""
    program = [sys.executable, "-m", "agent_layer.infra.processes.supervised", f"--grace={grace_seconds:g}"]
    return [*program, *options, *command]


def supervise(
    command: Sequence[str],
    grace_seconds: float = GRACE_SECONDS,
    *,
    orphan_seconds: float | None = None,
    kept: int | None = None,
    log: int | None = None,
) -> int:
    """Run the command until it ends or standard input closes; return its exit status.

    Args:
        command: program and arguments.
        grace_seconds: between SIGTERM and SIGKILL, once standard input is closed.
        orphan_seconds: in place of ``grace_seconds`` where the starter was killed; None: the same.
        kept: descriptor that the command inherits.
        log: descriptor of a file, to which the command's output is appended, to bound.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        pass_fds=() if kept is None else (kept,),
        preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),  # noqa: PLW1509  # there is one thread yet
    )

    def terminate(*_: object) -> None:
        _signal_group(process, signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminate)
    orphan = grace_seconds if orphan_seconds is None else orphan_seconds
    threading.Thread(target=_end_with_stdin, args=(process, grace_seconds, orphan), daemon=True).start()
    while (status := process.poll()) is None:  # short waits: Python handles a signal only after a wait returns
        time.sleep(_POLL_SECONDS)
        if log is not None:
            bound_log(log)
    _signal_group(process, signal.SIGKILL)
    return status


def bound_log(descriptor: int, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Cut a file that has grown beyond a size behind its beginning, and keep its end beside it as ``LOG.1``.

    Args:
        descriptor: of the file, which its writers append to; they are neither stopped nor told.
        max_bytes: size of the file, more than ``_HEAD_BYTES``; that of the other one is a few times as large if they write all the time.
    """
    size = os.fstat(descriptor).st_size
    if size <= max_bytes:
        return
    with suppress(OSError):  # a log that was removed has no place any more
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        with path.open("rb") as log, open(f"{path}.1", "wb", opener=open_private) as older:
            log.seek(size - max_bytes)
            for _ in range(_COPY_TURNS):  # it grows meanwhile, by less each time
                if not (piece := log.read(max_bytes)):
                    break
                older.write(piece)
    os.ftruncate(descriptor, _HEAD_BYTES)
    with suppress(OSError):  # a full disk
        os.write(descriptor, b"\n[what follows here is in the file .1 beside this one]\n")


def _end_with_stdin(process: subprocess.Popen[bytes], grace_seconds: float, orphan_seconds: float) -> None:
    is_ordered = False
    while os.read(0, 4096):
        is_ordered = True
    _signal_group(process, signal.SIGTERM)
    threading.Event().wait(grace_seconds if is_ordered else orphan_seconds)
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the whole group; this reaches what the command left behind even after its own end."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _main(arguments: Sequence[str]) -> int:
    options, command = dict[str, str](), list(arguments)
    while command[0].startswith(("--grace=", "--orphan=", "--keep=", "--log=")):
        name, _, value = command.pop(0).partition("=")
        options[name] = value
    grace_seconds = float(options.get("--grace", GRACE_SECONDS))
    kept, log = (int(options[name]) if name in options else None for name in ("--keep", "--log"))
    orphan_seconds = float(options.get("--orphan", grace_seconds))
    return supervise(command, grace_seconds, orphan_seconds=orphan_seconds, kept=kept, log=log)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
