"""Entry point of a shipper: ``python -m agent_layer.shipper [--locked]``, settings from the environment.

With ``--locked`` the starter has acquired the lock that marks the shipper as running, and hands it over.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from agent_layer.errors import AgentLayerError
from agent_layer.infra import LOCK_DESCRIPTOR, make_private, try_lock
from agent_layer.recorder import SHIPPER_ERROR, SHIPPER_REFUSAL
from agent_layer.settings import Settings, load_settings
from agent_layer.shipper.lifecycle import ShipperLoop

_STOP_SECONDS = 5.0
"""Time for logs in transit once the process is asked to end; a server that is away would take minutes of it."""

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Ship the settings' log directory; 0: all is shipped, 1: logs remain."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings, stop = None, _ended_by_signal()
    try:
        settings = load_settings()
        lock = _take_over() if "--locked" in arguments else _lock(settings)
        if lock is None:
            log.info("another shipper is at work directory=%s", settings.log_dir)
            return 0
        for file in (SHIPPER_ERROR, SHIPPER_REFUSAL):
            (settings.log_dir / file).unlink(missing_ok=True)
        return 0 if ShipperLoop(settings, lock, stop).run() else 1
    except AgentLayerError as error:
        log.critical("shipper ended error=%s", error)
        if settings is not None:
            with suppress(OSError):  # the log has it, too
                (settings.log_dir / SHIPPER_ERROR).write_text(str(error))
        return 1


def _take_over() -> int:
    os.set_inheritable(LOCK_DESCRIPTOR, False)  # noqa: FBT003  # has no keyword
    return _signed(LOCK_DESCRIPTOR)


def _lock(settings: Settings) -> int | None:
    make_private(settings.log_dir)
    lock = try_lock(settings.log_dir / "shipper.lock")
    return None if lock is None else _signed(lock)


def _signed(lock: int) -> int:
    """Write this process's id into the lock file."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def _ended_by_signal() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set; ``_STOP_SECONDS`` later the process ends, whatever it waits for.

    A thread sets it: a handler runs inside the main thread, which may hold the lock of this very event, and would then
    wait for itself for ever.
    """
    stop = threading.Event()

    def note(*_: object) -> None:
        """Take the place of the default, which ends the process; the descriptor has the signal already."""

    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # has no keyword
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)

    def end() -> None:
        os.read(reader, 1)
        stop.set()
        time.sleep(_STOP_SECONDS)
        _leave()

    threading.Thread(target=end, name="end by signal", daemon=True).start()
    return stop


def _leave() -> None:  # kept: the end has a name
    """End at once, as a kill would: the next shipper brings what was in transit."""
    log.warning("shipper ended with logs in transit, they stay")
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
