"""The crowd's servers: Redis, a scripted engine, a gateway and workers, each a process of its own."""

import os
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # what all tests share

from machine import Tree, children_of_all
from redis import Redis
from waiting import wait_until_ready

from agent_layer.infra.processes.addresses import free_port, is_responding
from agent_layer.infra.processes.supervised import SupervisedProcess, start_supervised
from agent_layer.infra.redis.embedded import acquire_server
from agent_layer.local.stack import run_stack
from agent_layer.settings import Settings

__all__ = ["Place", "open_place"]

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Place:
    """What runs, by name, and where the agents write their book."""

    settings: Settings
    processes: dict[str, SupervisedProcess]
    redis_pid: int
    book: Path

    @property
    def has_workers(self) -> bool:
        """Whether a worker runs."""
        return any(process.is_running for name, process in self.processes.items() if name.startswith("worker"))

    def trees(self) -> dict[str, Tree]:
        """Gateway, workers (with all that they started), shipper, engine and Redis, as the kernel sees them now."""
        lock = self.settings.log_dir / "shipper.lock"
        shipper = int(lock.read_text() or 0) if lock.exists() else 0
        children = children_of_all(without=shipper)  # all share one shipper; the first process to need it is its parent
        on_leash = {name: children.get(process.process.pid, []) for name, process in self.processes.items()}
        pids = {name: found[0] for name, found in on_leash.items() if found}
        return {
            name: Tree(pid, children) for name, pid in (pids | {"shipper": shipper, "redis": self.redis_pid}).items()
        }


@contextmanager
def open_place(directory: Path, num_workers: int, slots: int) -> Generator[Place]:
    """Start everything, with ``slots`` slots in each worker; it ends with the block."""
    settings = Settings(dir=directory, run="crowd")
    book = directory / "crowd.book"
    book.touch()
    with ExitStack() as cleanup:
        redis_socket = acquire_server(settings)
        with Redis(unix_socket_path=str(redis_socket)) as redis:
            redis_pid = int(redis.info("server")["process_id"])
        port = free_port()
        command = [sys.executable, "-m", "agent_layer.local.scripted", f"--port={port}"]
        engine = start_supervised(command, {}, directory / "engine.log")
        cleanup.callback(engine.stop)
        wait_until_ready(engine.process, lambda: is_responding(f"http://127.0.0.1:{port}/health"), log=engine.log)
        stack = cleanup.enter_context(run_stack(settings, f"http://127.0.0.1:{port}"))
        workers = {
            f"worker {number}": _start_worker(stack.settings, directory / f"worker{number}.log", slots, book)
            for number in range(num_workers)
        }
        for worker in workers.values():
            cleanup.callback(worker.stop)
        processes = {"engine": engine, "gateway": stack.processes["gateway"], **workers}
        yield Place(settings=stack.settings, processes=processes, redis_pid=redis_pid, book=book)


def _start_worker(settings: Settings, log: Path, slots: int, book: Path) -> SupervisedProcess:
    command = [sys.executable, "-m", "agent_layer.cli", "work", "agent:agent", f"--slots={slots}"]
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    variables = {**settings.environment(), "CROWD_BOOK": str(book), "PYTHONPATH": path}
    return start_supervised(command, variables, log)
