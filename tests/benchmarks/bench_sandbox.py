"""Sandboxes: hand-out, execs, snapshots and memory of each kind that works here, beside a Python that is started."""

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from bench_sandbox_bursts import run_docker_daemon
from bench_table import Figure

from agent_layer.schema.sandbox import Resources, Sandbox, SandboxSpec
from envs.sandbox import PoolOptions, SandboxKind, SandboxPool, make_kind, open_pool

__all__ = ["measure_sandbox"]

ROUNDS, EXECS = 30, 100
CODE = "print(sum(range(10)))"
PYTHON = ["/usr/bin/python3", "-I", "-S", "-c", CODE]
SUSTAINED_SECONDS = 5.0
MB_OF_FILES = b"x" * (1 << 20)


def measure_sandbox(directory: Path) -> list[Figure]:
    """Measure every kind, one after the other."""
    with run_docker_daemon():
        return asyncio.run(_measure_all(directory))


async def _measure_all(_: Path) -> list[Figure]:
    figures = await _measure_one_shots()
    for name in ("session", "oci"):
        figures += await _measure_sessions(name)
    return figures + await _measure_docker()


async def _measure_one_shots() -> list[Figure]:
    async with _open_pool("namespace") as pool:
        if isinstance(pool, str):
            return [Figure("sandbox, kind namespace", pool, "", "", "")]
        spec, starts, shots = SandboxSpec(kind="namespace"), list[float](), list[float]()
        for _round in range(ROUNDS):
            starts.append(_time_python())
            await asyncio.sleep(0.05)  # the pool refills between takes
            shots.append(await _timed(lambda: _one_shot(pool, spec)))
        began, count = time.monotonic(), 0
        while time.monotonic() - began < SUSTAINED_SECONDS:
            await asyncio.gather(*(_one_shot(pool, spec) for _round in range(2)))
            count += 2
        rate = count / (time.monotonic() - began)
        mb = await _measure_memory(pool, spec, 8)
    return [
        _figure("one-shot, warm: take to result, ms", shots, starts, "p50 ≤ 5 and ≤ 0.25x, p99 ≤ 25"),
        Figure("sandbox, one-shots sustained, a second", f"{rate:.0f}", "", "", "≥ 60"),
        Figure("sandbox, a parked namespace box, MB (PSS)", f"{mb:.1f}", "", "", "≤ 4"),
    ]


async def _measure_sessions(name: str) -> list[Figure]:
    async with _open_pool(name) as pool:
        if isinstance(pool, str):
            return [Figure(f"sandbox, kind {name}", pool, "", "", "")]
        spec = SandboxSpec(kind=name, resources=Resources(disk_mb=64))
        starts, firsts, execs, packs, unpacks = (list[float]() for _ in range(5))
        for _round in range(ROUNDS):
            starts.append(_time_python())
            began = time.perf_counter()
            box = await pool.take(spec, owner="bench")
            await box.exec(["true"])
            firsts.append(time.perf_counter() - began)
            await box.write("file", MB_OF_FILES)
            packs.append(await _timed(box.snapshot))
            snapshot = await box.snapshot()
            unpacks.append(await _timed(lambda box=box, snapshot=snapshot: box.restore(snapshot)))
            await box.close()
        box = await pool.take(spec, owner="bench")
        for _exec in range(EXECS):
            execs.append(await _timed(lambda: box.exec(["true"])))
        await box.close()
        mb = await _measure_memory(pool, spec, 8)
    aims = name == "session"
    return [
        _figure(f"{name}, start to first exec, ms", firsts, starts, "p50 ≤ 60 and ≤ 2x, p99 ≤ 250" if aims else ""),
        _figure(f"{name}, exec of true, ms", execs, starts, "p50 ≤ 3, p99 ≤ 15" if aims else ""),
        _figure(f"{name}, snapshot of 1 MB, ms", packs, starts, "p50 ≤ 15" if aims else ""),
        _figure(f"{name}, restore of 1 MB into a box, ms", unpacks, starts, "≤ 10" if aims else ""),
        Figure(f"sandbox, a {name} box, MB (PSS)", f"{mb:.1f}", "", "", "≤ 8" if aims else ""),
    ]


async def _measure_docker() -> list[Figure]:
    async with _open_pool("docker", ready=1) as pool:
        if isinstance(pool, str):
            return [Figure("sandbox, kind docker", pool, "", "", "")]
        spec, starts, takes, execs = SandboxSpec(kind="docker"), list[float](), list[float](), list[float]()
        for _round in range(ROUNDS // 3):
            starts.append(_time_python())
            await pool.expect([(spec, 1)])
            while not pool.stats().ready:  # noqa: ASYNC110  # a pool gives no notice
                await asyncio.sleep(0.01)
            began = time.perf_counter()
            box = await pool.take(spec, owner="bench")
            takes.append(time.perf_counter() - began)
            execs += [await _timed(lambda box=box: box.exec(["true"])) for _exec in range(10)]
            await box.close()
        cold = pool.stats().start_seconds_p50 or 0.0
    return [
        _figure("docker, hand-out of a ready box, ms", takes, starts, "p50 ≤ 10"),
        _figure("docker, exec of true, ms", execs, starts, ""),
        Figure("sandbox, docker, cold start, ms: p50", f"{cold * 1000:.0f}", "", "", "≤ 1.1x docker run"),
    ]


@contextlib.asynccontextmanager
async def _open_pool(name: str, ready: int | None = None):
    """Open a pool of one kind, with a box made; or give the reason why it does not work."""
    kind: SandboxKind = make_kind(name)
    support = await kind.probe()
    if not support.works:
        await kind.close()
        yield support.reason
        return
    ready = ready if ready is not None else int(name == "namespace")
    async with open_pool(PoolOptions(ready_per_spec=ready), kinds=[kind]) as pool:
        yield pool


async def _one_shot(pool: SandboxPool, spec: SandboxSpec) -> None:
    box = await pool.take(spec, owner="bench")
    result = await box.exec(["python3", "-I", "-S", "-c", CODE])
    assert result.stdout == b"45\n", result
    await box.close()


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def _time_python() -> float:
    began = time.perf_counter()
    subprocess.run(PYTHON, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


async def _measure_memory(pool: SandboxPool, spec: SandboxSpec, number: int) -> float:
    """Return what one box more takes, of several, in MB."""
    first = await pool.take(spec, owner="bench")
    before = _pss_mb()
    boxes: Sequence[Sandbox] = [await pool.take(spec, owner="bench") for _ in range(number)]
    each = (_pss_mb() - before) / number
    for box in (first, *boxes):
        await box.close()
    return each


def _pss_mb() -> float:
    total = 0
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            yield from _descendants(child)


def _figure(what: str, ours: list[float], peer: list[float], aim: str) -> Figure:
    p50, p99 = _quantile(ours, 0.5), _quantile(ours, 0.99)
    floor = _quantile(peer, 0.5)
    return Figure(
        f"sandbox, {what}: p50, p99; beside python3 -I -S -c",
        f"{p50 * 1000:.1f}, {p99 * 1000:.1f}",
        f"{floor * 1000:.1f}, {_quantile(peer, 0.99) * 1000:.1f}",
        f"{p50 / floor:.2f}",
        aim,
    )


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
