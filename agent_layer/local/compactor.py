"""Background compaction: merges small segments beside a running stack, in a process of low priority.

A thread watches how many segments there are. ``python -m agent_layer.local.compactor`` is one merge. It may be killed
at any time, and the next one goes on.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from redis.exceptions import RedisError

from agent_layer.errors import AgentLayerError
from agent_layer.infra import Keys, open_redis, start_supervised
from agent_layer.settings import Settings, load_settings
from agent_layer.store import Limits, open_store

_NICENESS = 10
_POLL_SECONDS = 0.1
_LOCK_SECONDS = 1.0
"""Longest wait for another process that compacts."""
_EXIT_MORE = 3
"""Exit status of a merge that reached its limit, or paused under load, and left segments for the next one."""
_MAX_PAUSE_SECONDS = 3600.0
"""Between merges that fail: another process compacts, or this user may not."""

log = logging.getLogger(__name__)


def load_per_core() -> float:
    """Return the load average of the last minute, per core of this machine."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


@contextmanager
def run_compactor(settings: Settings, load: Callable[[], float] = load_per_core) -> Generator[None]:
    """Merge small segments in the background during the block; see the settings ``compact_*``."""
    if settings.compact_seconds == 0:
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(settings, load, stop), name="compactor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(settings.stop_seconds)


def _watch(settings: Settings, load: Callable[[], float], stop: threading.Event) -> None:
    num_before, pause_seconds = 0, settings.compact_seconds
    while not stop.wait(pause_seconds):
        if load() > settings.compact_load:
            continue
        try:
            num_segments = _count_segments(settings)
            if num_segments - num_before < settings.compact_segments:
                continue
            status = _merge_in_process(settings, stop)
            num_before = _count_segments(settings) if status == 0 else num_before
        except (AgentLayerError, RedisError, OSError) as error:
            log.warning("background compaction waits error=%s", error)
            status = 1
        has_failed = status not in (0, _EXIT_MORE)
        pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS) if has_failed else settings.compact_seconds


def _count_segments(settings: Settings) -> int:
    with open_redis(settings) as redis:
        return redis.hlen(Keys(settings.namespace).segments)


def _merge_in_process(settings: Settings, stop: threading.Event) -> int | None:
    """Run one merge; return its exit status."""
    command = [sys.executable, "-m", "agent_layer.local.compactor"]
    process = start_supervised(command, settings.environment(), settings.dir / "logs" / "compactor.log")
    while process.is_running and not stop.wait(_POLL_SECONDS):
        pass
    process.stop()
    return process.process.returncode


def main() -> int:
    """Merge once, within the limits of the settings; return the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    os.nice(_NICENESS)
    try:
        settings = load_settings()
        limits = Limits(max_bytes=settings.compact_bytes, wait_seconds=_LOCK_SECONDS)
        admin = open_store(settings).admin
        report = admin.compact(limits=limits, is_stopped=lambda: load_per_core() > settings.compact_load)
    except AgentLayerError as error:
        log.warning("not compacted error=%s", error)
        return 1
    log.info("compacted segments=%d became=%d later=%d", report.num_removed, report.num_made, report.num_deferred)
    return _EXIT_MORE if report.num_deferred else 0


if __name__ == "__main__":
    sys.exit(main())
