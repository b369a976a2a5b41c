"""The watch over the parts of a run on Ray: a death is found, whatever else a look raises.

Ray takes seconds to import, so it is imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import asyncio
import logging
import random
from threading import Thread
from types import ModuleType

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from agent_layer.errors import AgentLayerError, BadInputError, EngineError, UnreachableError

from ...waiting import join

AWAY = {
    "redis": lambda _: RedisConnectionError("refused"),
    "ours": lambda _: UnreachableError("redis: expected an answer"),
    "rpc": lambda ray: ray.RpcError("GCS is away"),
    "system": lambda ray: ray.RaySystemError("GCS is away"),
    "late": lambda ray: ray.GetTimeoutError("no answer"),
    "files": lambda _: OSError("too many open files"),
}
"""What Redis, Ray or the machine raise for a while; made of ``ray.exceptions``."""


class UnprintableError(Exception):
    """An error whose own text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")


BROKEN = {
    "key": lambda _: KeyError("node"),
    "value": lambda _: ValueError("no state"),
    "attribute": lambda _: AttributeError("none"),
    "text": lambda _: UnprintableError(),
    "cancelled": lambda _: asyncio.CancelledError("look"),
    "exit": lambda _: SystemExit(1),
}
"""What no part that is away for a while raises; some of it ends a thread without a word."""


class Clock:
    """Time that passes with each look."""

    def __init__(self, step: float = 0.5, num_looks: int = 1000) -> None:
        self.now, self._step, self._left = -step, step, num_looks  # the first look is at 0

    def is_over(self) -> bool:
        """Let time pass until the run is over."""
        self.now += self._step
        self._left -= 1
        return self._left < 0

    def read(self) -> float:
        """Return the time."""
        return self.now


def scripted(*script):
    """A look with these results, the last one again and again."""
    left = list(script)

    def look():
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, BaseException):
            raise found
        return found

    return look


@pytest.fixture(scope="module")
def deaths() -> ModuleType:
    from trainer_adapter.cluster.nodes import deaths

    return deaths


@pytest.fixture
def watch(deaths):
    """``watch(looks, clock=…)``: what the watch returns."""

    def watch(*looks, clock=None):
        clock = clock or Clock()
        return deaths.wait_for_death(looks, clock.is_over, clock.read)

    return watch


@pytest.fixture
def rank(deaths):
    return deaths.Death("rank 1 has ended")


@pytest.fixture
def error(request):
    from ray import exceptions

    return (AWAY | BROKEN)[request.param](exceptions)


def errors(kinds):
    """Run a test over these kinds of errors."""
    return pytest.mark.parametrize("error", kinds, indirect=True)


@errors(AWAY)
def test_a_death_behind_an_outage_is_found_and_the_outage_is_logged_once(watch, rank, error, caplog):
    with caplog.at_level(logging.WARNING):
        found = watch(scripted(None, error, error, None, rank))

    assert found == rank
    began, ended = [record.message for record in caplog.records]
    assert type(error).__name__ in began
    assert str(error) in began
    assert "again" in ended


@errors(AWAY | BROKEN)
def test_a_part_that_cannot_be_looked_at_hides_no_death_of_another(watch, rank, error):
    rng = random.Random(0)
    for _ in range(20):
        looks = [scripted(error), scripted(error), scripted(rank), scripted(None)]
        rng.shuffle(looks)

        assert watch(*looks) == rank


@errors(AWAY)
def test_an_outage_that_lasts_ends_the_run_with_what_was_raised(watch, deaths, error):
    clock = Clock(step=deaths.MAX_BLIND_SECONDS / 10)

    found = watch(scripted(error), scripted(None), clock=clock)

    assert found is not None
    assert type(error).__name__ in found.why
    assert str(error) in found.why
    assert clock.read() > deaths.MAX_BLIND_SECONDS


def test_outages_with_a_look_between_them_do_not_add_up(watch, deaths):
    clock = Clock(step=deaths.MAX_BLIND_SECONDS / 3, num_looks=60)
    outage = [RedisConnectionError("refused"), OSError("refused"), UnreachableError("refused")]

    assert watch(scripted(*[*outage, None] * 20), clock=clock) is None


def test_parts_that_take_turns_in_being_away_are_each_seen_again(watch, deaths):
    clock = Clock(step=deaths.MAX_BLIND_SECONDS / 3, num_looks=60)
    one, other = [OSError("a"), OSError("a"), None, None], [None, None, OSError("b"), OSError("b")]

    assert watch(scripted(*one * 15), scripted(*other * 15), clock=clock) is None


@errors(BROKEN)
def test_a_watch_that_fails_itself_ends_the_run_with_why(deaths, error):
    found = deaths.wait_for_death([], scripted(error))

    assert type(error).__name__ in found.why


@errors(BROKEN)
def test_a_look_that_fails_in_another_way_ends_the_run_at_once(watch, error):
    clock = Clock()

    found = watch(scripted(None, error), clock=clock)

    assert found is not None
    assert type(error).__name__ in found.why
    assert clock.read() == 0.5


def test_all_that_died_between_two_looks_is_named(watch, deaths, rank):
    found = watch(scripted(None, deaths.Death("engine a", ("http://a",))), scripted(None, rank))

    assert found == deaths.Death("engine a, rank 1 has ended", ("http://a",))


def test_a_run_that_is_over_has_no_death(watch):
    assert watch(scripted(None), clock=Clock(num_looks=3)) is None


@errors(AWAY | BROKEN)
def test_each_action_that_ends_a_run_is_taken_whatever_another_raises(deaths, error):
    taken: list[int] = []

    deaths.act_on_death([scripted(error), lambda: taken.append(1), scripted(error), lambda: taken.append(2)])

    assert taken == [1, 2]


@pytest.mark.parametrize(
    "kind", [RuntimeError, EngineError, UnreachableError, ConnectionResetError], ids=lambda one: one.__name__
)
def test_a_death_that_is_known_later_is_the_cause_of_what_a_thread_raised_before(deaths, kind):
    cause, death, found = deaths.Cause(), EngineError("machine b has ended"), []
    waiting = Thread(target=lambda: found.append(cause.wait_behind(kind("connection reset"), seconds=600)))
    waiting.start()
    cause.name(death)
    join(waiting)

    assert found == [death]


def test_an_error_without_a_death_is_its_own_cause(deaths):
    error = RuntimeError("no such key")

    assert deaths.Cause().wait_behind(error, seconds=0) is error


@pytest.mark.parametrize("kind", [AgentLayerError, BadInputError])
def test_an_error_that_no_start_mends_is_not_waited_for(deaths, kind):
    error = kind("rank 8: another adapter")

    assert deaths.Cause().wait_behind(error, seconds=float("inf")) is error, "no wait has that limit"
