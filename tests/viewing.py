"""The store that tests of the page look at: two runs, groups, rewards, versions, failures, made by a seed; and its API.

``viewed`` is filled once a module, for tests that only read; it has two updates of run r0, too. ``fresh`` is a
test's own, without updates, to write to; ``empty`` has nothing yet.
"""

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp.client import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from redis import Redis

from agent_layer.infra import open_objects
from agent_layer.infra.redis.client import open_redis
from agent_layer.schema.codec import LogRecord
from agent_layer.schema.record import Advantages, Logprobs, TokenIds
from agent_layer.schema.step import PromptDelta
from agent_layer.schema.task import Task
from agent_layer.schema.training import ExcludedRollout, TrainedBatch, TrainedRollout, TrainedTokens, Vocabulary
from agent_layer.settings import Settings
from agent_layer.state.vocabularies import store_vocabulary
from agent_layer.store import Store
from agent_layer.view import ReadContext, build_view_app

from .builders import attempt, call, closed_group, sampled
from .stored import write_segment

__all__ = [
    "API_KEY",
    "GROUP_SIZE",
    "NUM_ENGINES",
    "SECRET",
    "Viewed",
    "fresh",
    "store_update",
    "viewed",
    "viewed_store",
]

SECRET = "the hidden answer"
"""The grading of each task."""
API_KEY = "operator-key"
GROUP_SIZE, NUM_ENGINES = 4, 11
_NUM_GROUPS = 6


@dataclass(frozen=True)
class Viewed:
    """A store, and the API of a page over it."""

    store: Store
    settings: Settings

    @property
    def source(self) -> ReadContext:
        return ReadContext(self.settings, self.store)

    def get(self, path: str, status: int = 200, token: str | None = None, method: str = "GET", **headers: str) -> Any:
        """Ask a server that serves this one request; return its JSON."""
        return self.ask(path, status, token, method, headers)[0]

    def ask(
        self,
        path: Any,
        status: int = 200,
        token: str | None = None,
        method: str = "GET",
        headers: dict[str, str] | None = None,
    ) -> tuple[Any, ClientResponse]:
        async def ask() -> tuple[Any, ClientResponse]:
            async with TestClient(TestServer(build_view_app(self.source, token))) as client:
                answer = await client.request(method, path, headers=headers, allow_redirects=False)
                text = await answer.text(errors="replace")
                assert answer.status == status, text
                return (json.loads(text) if answer.content_type == "application/json" else {}), answer

        return asyncio.run(ask())


@pytest.fixture
def empty(settings: Settings, redis: Redis) -> Viewed:
    """A store of the test's own, without anything."""
    settings = settings.model_copy(update={"api_key": API_KEY})
    return Viewed(Store(settings, redis, open_objects(settings)), settings)


@pytest.fixture
def fresh(empty: Viewed) -> Viewed:
    """A store of the test's own."""
    _fill(empty.store)
    return empty


@pytest.fixture(scope="module")
def viewed_store(module_settings: Settings) -> Iterator[Viewed]:
    """The store that no test of a module changes."""
    settings = module_settings.model_copy(update={"api_key": API_KEY})
    with open_redis(settings) as redis:
        store = Store(settings, redis, open_objects(settings))
        _fill(store)
        for step in (1, 2):
            store_update(store, step=step)
        yield Viewed(store, settings)


@pytest.fixture
def viewed(viewed_store: Viewed) -> Iterator[Viewed]:
    """The store of the module, to read; a test that changes it fails, and needs ``fresh``."""
    before = _objects(viewed_store)
    yield viewed_store
    assert _objects(viewed_store) == before


def _objects(viewed: Viewed) -> list[str]:
    return sorted(viewed.store.objects.list(""))


def store_update(store: Store, version: int = 1, step: int = 1) -> TrainedTokens:
    """Store an update of run r0 that learned from two rollouts and left one out; return what it computed for one."""
    whole = store.get("g0.0-0")
    sizes = [len(step.action.response_token_ids) for step in whole.steps]
    own = {"run": "r0", "batch_id": f"b{step}", "step": step, "policy_version": version}
    rollouts = [
        TrainedRollout(trajectory_id=f"g0.{at}-0", group_id="g0", reward=1.0 - at / 2, reward_ids=[], samples_hash="")
        for at in range(2)
    ]
    trained = TrainedTokens(
        **own,
        trajectory_id="g0.0-0",
        at=9.0,
        calls=[(step.call_id, 0, size) for step, size in zip(whole.steps, sizes, strict=True)],
        logprobs=Logprobs([-0.25] * sum(sizes)),
        advantages=Advantages([0.5] * sum(sizes)),
        mask=bytes([1] * (sum(sizes) - 1) + [0]),
    )
    own_left = {"trajectory_id": f"g0.{step + 1}-0", "run": "r0", "step": step, "at": 9.0}
    left = ExcludedRollout(**own_left, kind="greedy", reason="why")
    batch = TrainedBatch(**own, trained_at=9.0, rollouts=rollouts, num_samples=2, batch_hash="")
    write_segment(store, batch, trained, left)
    return trained


def _fill(store: Store) -> None:
    dice = random.Random(7)
    vocabulary = Vocabulary(tokenizer_hash="v", sizes=TokenIds([1] * 10), content=b"abcdefghi\xe2")
    store_vocabulary(store.keys, store.objects, vocabulary)
    for number in range(_NUM_GROUPS):
        group = f"g{number}"
        names = [f"{group}.{member}-0" for member in range(GROUP_SIZE)]
        records: list[LogRecord] = []
        for at, name in enumerate(names):
            status = "failed" if dice.random() < 0.2 else "completed"
            records += attempt(
                name,
                *_calls(dice, name),
                at=100.0 * number + at,
                run=f"r{number % 2}",
                status=status,
                score=dice.choice([0.0, 0.25, 0.3, 1.0, -2.0]),
                group_id=group,
                task_id=f"t{number}",
                task_type=dice.choice(["easy", "hard"]),
                task=Task(id=f"t{number}", run="r", input="what?", grading=SECRET),
            )
        run = {"run": f"r{number % 2}", "task_id": f"t{number}", "group_size": GROUP_SIZE}
        write_segment(store, *records, closed_group(group, *names, num_launched=GROUP_SIZE, **run))


def _calls(dice: random.Random, name: str) -> list[LogRecord]:
    """Return the records of two calls; the second continues the first."""
    first, second = ([dice.randrange(10) for _ in range(dice.randrange(1, 5))] for _ in range(2))
    engine = f"http://10.0.0.{(GROUP_SIZE * int(name[1]) + int(name[3])) % NUM_ENGINES}:8000"
    run = {"run": "r", "tokenizer_hash": "v", "capture_level": "tokens", "engine": engine}
    continued = PromptDelta(
        delta=TokenIds([5, 6]), parent_call=f"{name}/a", prefix_length=2 + len(first), prefix_hash="not read"
    )
    begun = PromptDelta(delta=TokenIds([1, 2]))
    return [
        *call(name, "a", sampled(*first, version=dice.randrange(3)), at=2.0, prompt=begun, **run),
        *call(name, "b", sampled(*second, version=dice.randrange(3)), at=3.0, prompt=continued, **run),
    ]
