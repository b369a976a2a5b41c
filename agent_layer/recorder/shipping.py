"""Start of shippers: each log directory has one shipper process, which its writers start."""

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent_layer.infra import Detached, make_private, start_detached, try_lock

if TYPE_CHECKING:
    from agent_layer.settings import Settings

_guard = threading.Lock()
os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_guard.release)
"""A child forked while this process holds the lock would keep it from every shipper."""

SHIPPER_ERROR: Final = "shipper.error"
"""File of a log directory: why its last shipper could not start. Records stay in the directory until one can."""
SHIPPER_REFUSAL: Final = "shipper.refusal"
"""File of a log directory, while something is refused: what its shipper tries again, and why."""
_PAUSE_SECONDS = 1.0
"""Least time between two starts for one directory, in case shippers die at once."""

_MAX_OUTPUT_BYTES = 1 << 20
"""A longer output of shippers is rotated when the next one starts."""

_started: dict[Path, tuple[Detached, float]] = {}
"""The last shipper that this process started for a directory, and when."""


def ensure_shipper(settings: "Settings") -> None:
    """Start ``python -m agent_layer.shipper`` unless one runs for this log directory.

    This acquires the lock that marks a shipper as running and hands it over, so that two are never started.

    Raises: OSError: none could start now.
    """
    directory = settings.log_dir.absolute()
    with _guard:
        last, started_at = _started.get(directory, (None, float("-inf")))
        if time.monotonic() < started_at + _PAUSE_SECONDS:
            return
        if last is not None:
            last.has_ended()
        make_private(directory)
        if (lock := try_lock(directory / "shipper.lock")) is not None:
            try:
                _started[directory] = _start(settings, directory, lock), time.monotonic()
            finally:
                os.close(lock)  # or no shipper could start before this process ends


def read_shipper_error(directory: Path, *, since: float) -> str | None:
    """Return why a shipper of this directory could not start since a time (epoch seconds); None: none has failed."""
    path = directory / SHIPPER_ERROR
    try:
        return path.read_text() or None if path.stat().st_mtime >= since else None
    except OSError:  # there is none, or this process cannot read it now
        return None


def read_refusal(directory: Path) -> str | None:
    """Return why records of this directory are not stored yet; None: nothing was refused, or it is not known."""
    try:
        return (directory / SHIPPER_REFUSAL).read_text() or None
    except OSError:
        return None


def _start(settings: "Settings", directory: Path, lock: int) -> Detached:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_LAYER_")}
    arguments, output = ["-m", "agent_layer.shipper", "--locked"], directory / "shipper.log"
    if output.exists() and output.stat().st_size > _MAX_OUTPUT_BYTES:
        output.replace(directory / "shipper.log.old")
    return start_detached(arguments, inherited | settings.environment(), output, lock)
