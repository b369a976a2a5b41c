"""The page beside a run: its address is open from the start, its process starts with the first request.

The run listens, so it knows and announces the address, and spends nothing on a page that stays unopened. When a browser
connects, ``page_process`` inherits the listener and serves. It ends with the run, however that ends. A page that cannot
start is reported once, and costs the run nothing else.
"""

import select
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager

from agent_layer.errors import AgentLayerError
from agent_layer.infra import RestartHistory, RestartPolicy, SupervisedProcess, is_listening, start_supervised
from agent_layer.settings import Settings
from agent_layer.view import announce_page, find_page

PORT = 8792
"""Port of the page, unless another program has it."""
_HOST = "127.0.0.1"
_BACKLOG = 128
"""Connections that may wait while the process starts."""
_CHECK_SECONDS = 1.0
_MAX_UNREADY = 2
_RESTARTS = RestartPolicy(healthy_seconds=0.0, max_unready=_MAX_UNREADY)


@contextmanager
def run_page(settings: Settings, warn: Callable[[str], None]) -> Generator[str | None]:
    """Have a page that shows the namespace during the block; yield its address, None if there cannot be one.

    A page that serves already is used: that of ``AGENT_LAYER_VIEW_URL``, or one that announces itself.

    Args:
        settings: of the run.
        warn: receives one sentence when the page cannot start, maybe from a thread.
    """
    with ExitStack() as opened:
        try:
            address = _find_serving(settings) or opened.enter_context(_open_page(settings, warn))
        except (AgentLayerError, OSError) as error:
            warn(f"no page: {error}")
            address = None
        yield address


def _find_serving(settings: Settings) -> str | None:
    """Return the address of a page that serves now; one that announced itself may have been killed since."""
    address = find_page(settings)
    return address if address and (settings.view_url or is_listening(address)) else None


@contextmanager
def _open_page(settings: Settings, warn: Callable[[str], None]) -> Generator[str]:
    scheme = "https" if settings.tls_cert else "http"
    stop, wake = socket.socketpair()
    with stop, wake, closing(_listen()) as listener, ExitStack() as announced:
        address = f"{scheme}://{_HOST}:{listener.getsockname()[1]}/"
        announced.enter_context(announce_page(settings, address))

        def give_up(reason: str) -> None:
            announced.close()
            listener.close()  # browsers see at once that nothing answers
            warn(f"no page at {address}: {reason}")

        watcher = threading.Thread(target=_serve_on_demand, args=(settings, listener, wake, give_up), daemon=True)
        watcher.start()
        try:
            yield address
        finally:
            stop.close()
            watcher.join()


def _listen() -> socket.socket:
    try:
        return socket.create_server((_HOST, PORT), backlog=_BACKLOG)
    except OSError:
        return socket.create_server((_HOST, 0), backlog=_BACKLOG)


def _serve_on_demand(
    settings: Settings, listener: socket.socket, wake: socket.socket, give_up: Callable[[str], None]
) -> None:
    """Start the page when a client waits and none runs, until the other end of ``wake`` closes."""
    history, process, is_ready = RestartHistory(_RESTARTS), None, False
    while True:
        if process is not None and not process.is_running:
            history.record_exit(0.0, was_ready=is_ready)
            if history.must_give_up:
                return give_up(f"its process ended {_MAX_UNREADY} times, see {process.log}: {process.log_tail}")
            process = None
        waiting = [wake] if process is not None else [wake, listener]
        ready, _, _ = select.select(waiting, [], [], None if process is None else _CHECK_SECONDS)
        if wake in ready:
            return None if process is None else process.stop()
        if process is not None:
            is_ready = is_ready or not select.select([listener], [], [], 0)[0]  # it accepted the client that waited
        elif listener in ready:
            try:
                process, is_ready = _start(settings, listener), False
            except OSError as error:
                return give_up(str(error))


def _start(settings: Settings, listener: socket.socket) -> SupervisedProcess:
    command = [sys.executable, "-m", "agent_layer.local.page_process", f"--listener={listener.fileno()}"]
    log = settings.dir.absolute() / "logs" / "view.log"
    return start_supervised(command, settings.environment(), log, kept=listener.fileno())
