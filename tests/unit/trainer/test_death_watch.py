"""The watch over the parts of a run on Ray: a death is found, whatever else a look raises."""

import logging
import random
from collections.abc import Callable

import pytest

pytest.importorskip("ray")

from ray.exceptions import GetTimeoutError, RaySystemError, RpcError
from redis.exceptions import ConnectionError as RedisConnectionError

from agent_layer.errors import UnreachableError
from trainer_adapter.cluster.nodes.deaths import MAX_BLIND_SECONDS, Death, Look, act_on_death, wait_for_death

AWAY = [
    RedisConnectionError("refused"),
    UnreachableError("redis: expected an answer"),
    RpcError("GCS is away"),
    RaySystemError("GCS is away"),
    GetTimeoutError("no answer"),
    OSError("too many open files"),
]
BROKEN = [KeyError("node"), ValueError("no state"), AttributeError("none")]
RANK = Death("rank 1 has ended")


class Clock:
    """Time that passes with each look."""

    def __init__(self, step: float = 0.5, num_looks: int = 1000) -> None:
        self.now, self._step, self._left = 0.0, step, num_looks

    def is_over(self) -> bool:
        """Let time pass until the run is over."""
        self.now += self._step
        self._left -= 1
        return self._left < 0

    def read(self) -> float:
        """Return the time."""
        return self.now


def scripted(*script: Death | Exception | None) -> Look:
    """A look with these results, the last one again and again."""
    left = list(script)

    def look() -> Death | None:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return look


def watch(*looks: Look, clock: Clock | None = None) -> Death | None:
    clock = clock or Clock()
    return wait_for_death(looks, clock.is_over, clock.read)


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_a_death_behind_an_outage_is_found_and_the_outage_is_said_once(
    error: Exception, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        found = watch(scripted(None, error, error, None, RANK))

    assert found == RANK
    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert type(error).__name__ in said[0]
    assert str(error) in said[0]
    assert "again" in said[1]


@pytest.mark.parametrize("error", [*AWAY, *BROKEN], ids=lambda error: type(error).__name__)
def test_a_part_that_cannot_be_looked_at_hides_no_death_of_another(error: Exception):
    random.seed(0)
    for _ in range(20):
        looks = [scripted(error), scripted(error), scripted(RANK), scripted(None)]
        random.shuffle(looks)

        assert watch(*looks) == RANK


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_an_outage_that_lasts_ends_the_run_with_what_was_raised(error: Exception):
    clock = Clock(step=MAX_BLIND_SECONDS / 10)

    found = watch(scripted(error), scripted(None), clock=clock)

    assert found is not None
    assert type(error).__name__ in found.why
    assert str(error) in found.why
    assert clock.read() > MAX_BLIND_SECONDS


def test_outages_with_a_look_between_them_do_not_add_up():
    clock = Clock(step=MAX_BLIND_SECONDS / 3, num_looks=60)

    assert watch(scripted(*[*AWAY[:3], None] * 20), clock=clock) is None


@pytest.mark.parametrize("error", BROKEN, ids=lambda error: type(error).__name__)
def test_a_look_that_fails_in_another_way_ends_the_run_at_once(error: Exception):
    clock = Clock()

    found = watch(scripted(None, error), clock=clock)

    assert found is not None
    assert type(error).__name__ in found.why
    assert clock.read() == 1.0


def test_all_that_died_between_two_looks_is_named():
    found = watch(scripted(None, Death("engine a", ("http://a",))), scripted(None, Death("rank 0")))

    assert found == Death("engine a, rank 0", ("http://a",))


def test_a_run_that_is_over_has_no_death():
    assert watch(scripted(None), clock=Clock(num_looks=3)) is None


@pytest.mark.parametrize("error", [*AWAY, *BROKEN], ids=lambda error: type(error).__name__)
def test_each_action_that_ends_a_run_is_taken_whatever_another_raises(error: Exception):
    taken: list[int] = []

    def raising() -> None:
        raise error

    actions: list[Callable[[], object]] = [raising, lambda: taken.append(1), raising, lambda: taken.append(2)]
    act_on_death(actions)

    assert taken == [1, 2]
