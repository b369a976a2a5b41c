"""This file holds how a shipper comes to run: one process for each log directory, started by whoever writes there."""

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent_layer.infra.processes import Detached, start_detached, try_lock

if TYPE_CHECKING:
    from agent_layer.settings import Settings

_guard = threading.Lock()
os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_guard.release)
"""A child forked while the lock is ours would keep it from every shipper."""

_PAUSE_SECONDS = 1.0
"""Between two starts for one directory, in case shippers die at once."""

_LONGEST_SAID_BYTES = 1 << 20
"""What shippers wrote beyond this is put aside when the next one starts, and replaces what was put aside before."""

_started: dict[Path, tuple[Detached, float]] = {}
"""The last shipper that this process started for a directory, and when."""


def ensure_shipper(settings: "Settings") -> None:
    """Start ``python -m agent_layer.shipper`` unless one runs for this log directory.

    The lock that marks a shipper as running is taken here and handed to it, so that no two are ever started.
    """
    directory = settings.log_dir.absolute()
    with _guard:
        last, started_at = _started.get(directory, (None, float("-inf")))
        if time.monotonic() < started_at + _PAUSE_SECONDS:
            return
        if last is not None:
            last.has_ended()
        directory.mkdir(parents=True, exist_ok=True)
        if (lock := try_lock(directory / "shipper.lock")) is not None:
            _started[directory] = _start(settings, directory, lock), time.monotonic()
            os.close(lock)


def _start(settings: "Settings", directory: Path, lock: int) -> Detached:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_LAYER_")}
    arguments, said = ["-m", "agent_layer.shipper", "--locked"], directory / "shipper.log"
    if said.exists() and said.stat().st_size > _LONGEST_SAID_BYTES:
        said.replace(directory / "shipper.log.old")
    return start_detached(arguments, inherited | settings.environment(), said, lock)
