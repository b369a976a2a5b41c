"""Work handed to a pool belongs to the rollout that hands it over; work that outlives its rollout belongs to none."""

import asyncio
import multiprocessing
import os
import queue
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from multiprocessing.pool import Pool, ThreadPool
from pathlib import Path
from tempfile import TemporaryFile

import pytest

import tracer
from agent_layer.schema import StepPart
from agent_layer.settings import Settings
from tracer.core import errors
from tracer.session import Session, use_session
from tracer.testing import Captured

from ...waiting import scaled

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@tracer.step
def ask(words):
    return words


def ask_twice(words):
    return [ask(words), ask(words)]


class Noted(Captured):
    """Notes (rollout, words) of each answer in a file, child processes included."""

    def __init__(self, file):
        super().__init__()
        self._file = file

    def append(self, *records):
        for record in records:
            if isinstance(record, StepPart) and record.actions:
                line = f"{record.trajectory_id} {record.actions[0].message['content']}\n"
                os.write(self._file.fileno(), line.encode())
        return super().append(*records)


@pytest.fixture
def noted(monkeypatch):
    monkeypatch.setattr(errors, "_WARNED", set())
    with TemporaryFile(buffering=0) as file, use_session(Session(settings=Settings(), sink=Noted(file))):

        def read():
            file.seek(0)
            return sorted(tuple(line.split()) for line in file.read().decode().splitlines())

        yield read


def submit(pool, words):
    return pool.submit(ask, words).result(30)


def submit_map(pool, words):
    return list(pool.map(ask, [words]))


async def _in_executor(pool, words):
    return await asyncio.get_running_loop().run_in_executor(pool, ask, words)


def in_executor(pool, words):
    return asyncio.run(_in_executor(pool, words))


def read_lazily(words):
    ask(words)  # by the thread that fills the pool
    yield words


def call_back(pool, words):
    called = threading.Event()

    def answer(found):
        ask(found)
        called.set()

    pool.apply_async(str, (words,), callback=answer).get(scaled(30))
    assert called.wait(scaled(30))


MULTIPROCESSING = {
    "apply": lambda pool, words: pool.apply(ask, (words,)),
    "apply_async": lambda pool, words: pool.apply_async(ask, (words,)).get(30),
    "map": lambda pool, words: pool.map(ask, [words]),
    "map_async": lambda pool, words: pool.map_async(ask, [words]).get(30),
    "starmap": lambda pool, words: pool.starmap(ask, [(words,)]),
    "imap": lambda pool, words: list(pool.imap(ask, [words])),
    "imap_chunks": lambda pool, words: list(pool.imap(ask, [words], chunksize=3)),
    "imap_unordered": lambda pool, words: list(pool.imap_unordered(func=ask, iterable=[words])),
    "inputs": lambda pool, words: list(pool.imap(str, read_lazily(words))),
    "callback": call_back,
}
FUTURES = {"submit": submit, "map": submit_map, "executor": in_executor}
FORK = multiprocessing.get_context("fork")
POOLS = {
    "threads": (lambda: ThreadPoolExecutor(1), FUTURES),
    "processes": (lambda: ProcessPoolExecutor(1, mp_context=FORK), FUTURES),
    "ThreadPool": (lambda: ThreadPool(1), MULTIPROCESSING),
    "Pool": (lambda: Pool(1, context=FORK), MULTIPROCESSING),
}
WAYS = [(pool, way) for pool, (_, ways) in POOLS.items() for way in ways]


@contextmanager
def begun_in(rollout, pool, way):
    make, ways = POOLS[pool]
    with nullcontext() if rollout is None else tracer.rollout(task="t", rollout_id=rollout):
        begun = make()
        ways[way](begun, f"by-{rollout}")
    with begun:
        yield lambda words: ways[way](begun, words)


@pytest.mark.parametrize(("pool", "way"), WAYS)
def test_each_task_is_in_the_rollout_that_handed_it_over(noted, pool, way):
    with begun_in(None, pool, way) as early, tracer.rollout(task="t") as a:
        early("a")
        with begun_in(None, pool, way) as late:  # begins inside the rollout of its surroundings
            with tracer.rollout(task="t") as b:
                early("b")
                late("b")
            late("a")
            with tracer.rollout(task="t") as c:
                late("c")
    a, b, c = (rollout.trajectory_id for rollout in (a, b, c))

    own = [(a, "a"), (a, "a"), (a, "by-None"), (b, "b"), (b, "b"), (c, "c")]
    assert noted() == sorted(own)


def test_children_that_a_pool_starts_later_are_in_no_rollout_of_its_beginning(noted):
    with tracer.rollout(task="t") as a:
        begun = Pool(
            1, maxtasksperchild=1, context=FORK
        )  # alone: children forked at one moment keep each other's pipes
        begun.apply(ask, ("a",))
    with begun:
        for words in ("b", "c"):
            with tracer.rollout(task="t", rollout_id=words):
                begun.apply(ask, (words,))
            begun.apply(ask, ("nobody",))

    assert noted() == sorted([(a.trajectory_id, "a"), ("b-0", "b"), ("c-0", "c")])


@pytest.mark.parametrize("pool", POOLS)
def test_a_pool_that_outlives_its_rollout_keeps_none(noted, pool, capfd):
    make, ways = POOLS[pool]
    way = next(iter(ways.values()))
    with tracer.rollout(task="t") as a:
        begun = make()
        way(begun, "a")
    with begun:
        way(begun, "nobody")

    assert noted() == [(a.trajectory_id, "a")]
    assert "has ended" not in capfd.readouterr().err


class Worker:
    """A worker of one's own, which takes pieces of work from a queue."""

    def __init__(self, kind):
        has_threads = kind in ("thread", "timer")
        self.questions, self.answered = (queue.Queue(), queue.Queue()) if has_threads else (FORK.Queue(), FORK.Queue())
        start = {
            "thread": lambda: threading.Thread(target=self.run).start(),
            "timer": lambda: threading.Timer(0.0, self.run).start(),
            "process": lambda: FORK.Process(target=self.run).start(),
            "grandchild": lambda: FORK.Process(target=self.start_child).start(),
        }
        start[kind]()

    def start_child(self):
        child = FORK.Process(target=self.run)
        child.start()
        child.join()

    def run(self):
        while (words := self.questions.get()) is not None:
            ask(words)
            self.answered.put(words)

    def work(self, words):
        self.questions.put(words)
        if words is not None:
            assert self.answered.get(timeout=scaled(30)) == words


@pytest.mark.parametrize("kind", ["thread", "timer", "process", "grandchild"])
def test_a_worker_that_outlives_its_rollout_is_in_none_and_says_so_once(noted, kind, capfd):
    with tracer.rollout(task="t") as a:
        worker = Worker(kind)
        worker.work("a")
    with tracer.rollout(task="t"):
        worker.work("b")
    worker.work("nobody")
    worker.work(None)

    assert noted() == [(a.trajectory_id, "a")]
    assert capfd.readouterr().err.count(f"rollout {a.rollout_id} has ended") == 1


def wait_and_ask(words):
    Path(words).read_bytes()  # a pipe: until it is written
    return ask("late")


@pytest.mark.parametrize("pool", ["threads", "processes", "ThreadPool", "Pool"])
def test_a_task_that_outlives_its_rollout_is_in_none(noted, pool, tmp_path):
    os.mkfifo(tmp_path / "go")
    with POOLS[pool][0]() as begun:
        with tracer.rollout(task="t") as a:
            hand_over = begun.submit if hasattr(begun, "submit") else lambda f, words: begun.apply_async(f, (words,))
            left = hand_over(wait_and_ask, str(tmp_path / "go"))
            ask("a")
        with tracer.rollout(task="t"):
            (tmp_path / "go").write_bytes(b"")
            assert (left.result if hasattr(left, "result") else left.get)(30) == "late"

    assert noted() == [(a.trajectory_id, "a")]


async def test_an_asyncio_task_that_outlives_its_rollout_is_in_none(noted):
    may_go = asyncio.Event()

    async def work():
        await may_go.wait()
        ask("late")
        await asyncio.to_thread(ask, "late")

    async with tracer.rollout(task="t") as a:
        left = asyncio.create_task(work())
        ask("a")
    async with tracer.rollout(task="t") as b:
        may_go.set()
        await left
        await asyncio.to_thread(ask, "b")

    assert noted() == sorted([(a.trajectory_id, "a"), (b.trajectory_id, "b")])


def test_a_rollout_that_is_entered_again_goes_on(noted):
    with tracer.rollout(task="t") as a:
        worker = Worker("thread")
    with tracer.enter_rollout(a):
        ask("again")
        worker.work("again")
    worker.work(None)

    assert noted() == [(a.trajectory_id, "again")] * 2


def test_other_context_and_errors_reach_the_caller_as_without_a_tracer(noted):
    with tracer.rollout(task="t"), ThreadPool(2) as threads, Pool(1, context=FORK) as processes:
        for pool in (threads, processes):
            assert pool.map(int, "123") == [1, 2, 3]
            assert pool.starmap(pow, [(2, 3), (2, 4)]) == [8, 16]
            assert list(pool.imap_unordered(int, "1")) == [1]
            assert pool.apply(sorted, ([2, 1],), {"reverse": True}) == [2, 1]
            with pytest.raises(ValueError, match="invalid literal"):
                pool.apply(int, ("x",))
            with pytest.raises(ZeroDivisionError):
                list(pool.imap(int, (1 // 0 for _ in "x")))
    assert noted() == []
