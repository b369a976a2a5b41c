"""Pulse of a worker: a small file, renewed at each answered heartbeat, for liveness probes.

``python -m agent_layer.local.pulse FILE --seconds 60`` exits with 0 while the newest answer is no older than that; with
``--claims`` only while the worker also claims rollouts. A probe runs every few seconds, so this imports only the
standard library.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

from agent_layer.infra.files import replace_file


class Pulse(NamedTuple):
    """A worker's newest pulse."""

    worker: str
    silent_seconds: float
    """Since the newest heartbeat that was answered."""
    is_draining: bool


def write_pulse(file: Path, worker: str, *, is_draining: bool) -> None:
    """Record an answered heartbeat; uses this machine's monotonic clock."""
    pulse = {"worker": worker, "answered_at": time.monotonic(), "is_draining": is_draining}
    replace_file(file, json.dumps(pulse).encode(), private=False)


def read_pulse(file: Path) -> Pulse | None:
    """Return the newest pulse; None: none yet, or not readable."""
    try:
        stored = cast("dict[str, object]", json.loads(file.read_text()))
        silent_seconds = time.monotonic() - float(cast("float", stored["answered_at"]))
        return Pulse(str(stored["worker"]), silent_seconds, bool(stored["is_draining"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def find_fault(file: Path, seconds: float, *, claims: bool = False) -> str | None:
    """Return why a probe fails; None when it succeeds.

    Args:
        file: the worker's AGENT_LAYER_PULSE_FILE.
        seconds: longest silence.
        claims: fail while the worker is about to end, too.
    """
    pulse = read_pulse(file)
    if pulse is None:
        return f"pulse {file}: expected that of a worker, found none; its first heartbeat is not answered yet"
    # the pulse of a machine that ran before this one was started may lie in the future
    if not 0 <= pulse.silent_seconds <= seconds:
        return f"worker {pulse.worker}: expected an answered heartbeat within {seconds:g} s, found none"
    if claims and pulse.is_draining:
        return f"worker {pulse.worker}: expected it to claim rollouts, found it ending"
    return None


def probe_pulse(arguments: Sequence[str]) -> int:
    """Probe a worker; 0: it is well, 1: it is not, and a line of output names the reason."""
    parser = argparse.ArgumentParser(prog="python -m agent_layer.local.pulse")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--claims", action="store_true")
    options = parser.parse_args(arguments)
    found = find_fault(options.file, options.seconds, claims=options.claims)
    if found is not None:
        sys.stdout.write(f"{found}\n")
    return 0 if found is None else 1
