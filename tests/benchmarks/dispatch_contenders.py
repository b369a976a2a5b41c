"""Start of each contender, and its promise when a worker dies."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_peers import PEERS_PYTHON
from dispatch_crews import Contender
from proxies import HERE, start_process

from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.redis.programs import find_redis_server
from agent_layer.settings import Settings

__all__ = ["GUARANTEES", "RAY", "new_celery", "new_ours", "new_saq", "new_taskiq", "run_redis"]

GUARANTEES = {
    "taskiq": "stream, acknowledged after the task; again after 10 min; no fencing",
    "saq": "swept and tried again; no fencing",
    "celery": "acknowledged late; again after 1 h; no fencing",
    "Ray": "actor calls tried again while their caller lives; nothing is stored",
}
RAY = [str(PEERS_PYTHON), str(HERE / "dispatch_ray.py")]


@contextmanager
def run_redis(directory: Path) -> Iterator[str]:
    """Run a Redis that writes each change down within a second; return its URL without a database."""
    port = free_port()
    # fmt: off
    command = [
        find_redis_server(Settings()).path, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory),
        "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction",
    ]
    # fmt: on
    with start_process(command, port, directory / "redis.log"):
        yield f"redis://127.0.0.1:{port}"


def new_ours(settings: Settings, num_workers: int, batch: int) -> Contender:
    """Return our queue; its workers claim and settle ``batch`` tasks at once."""
    program = [sys.executable, str(HERE / "dispatch_ours.py")]
    return Contender(
        name=f"ours, batch {batch}",
        work=[[*program, "work", str(batch)]] * num_workers,
        submit=[*program, "submit"],
        variables=settings.environment(),
        num_workers=num_workers,
    )


def new_taskiq(url: str, num_workers: int) -> Contender:
    """Taskiq over a Redis stream; one command starts its processes."""
    work = [_peer("taskiq"), "worker", "dispatch_taskiq:broker", "--no-parse", "--log-level=ERROR"]
    work += [f"--workers={num_workers}", "--ack-type=when_executed", "--max-prefetch=100"]
    return _peer_contender("taskiq", f"{url}/3", [work], num_workers)


def new_saq(url: str, num_workers: int) -> Contender:
    """Saq with 16 jobs at once in each process."""
    work = [[_peer("saq"), "dispatch_saq.settings", "--quiet"]] * num_workers
    return _peer_contender("saq", f"{url}/4", work, num_workers)


def new_celery(url: str, num_workers: int) -> Contender:
    """Celery without a pool: its processes cost more than tasks that do nothing, and the tally is not for threads."""
    work = [_peer("celery"), "-A", "dispatch_celery", "worker", "--loglevel=ERROR", "--pool=solo"]
    work += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    named = [[*work, f"--hostname=worker-{number}"] for number in range(num_workers)]
    return _peer_contender("celery", f"{url}/5", named, num_workers)


def _peer_contender(name: str, url: str, work: list[list[str]], num_workers: int) -> Contender:
    return Contender(
        name=name,
        work=work,
        submit=[str(PEERS_PYTHON), str(HERE / f"dispatch_{name}.py")],
        variables={"BENCH_REDIS": url},
        num_workers=num_workers,
    )


def _peer(program: str) -> str:
    return str(PEERS_PYTHON.with_name(program))
