"""A command of Redis is tried again whatever refuses it for now: the server, or this machine."""

import errno

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError, ResponseError

from agent_layer.infra.redis import retry
from agent_layer.infra.redis.retry import RedisUnreachableError, TimedRetry

REFUSALS = {
    "no server": RedisConnectionError("refused"),
    "no descriptor": OSError(errno.EMFILE, "too many open files"),
    "no space": OSError(errno.ENOSPC, "no space left on device"),
    "a failed sync": ResponseError("MISCONF Errors writing to the AOF file: Input/output error"),
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(retry.time, "sleep", lambda _: None)


class Refusing:
    """Raises an error this many times, then returns."""

    def __init__(self, error, num):
        self._error, self._num = error, num
        self.codes = []

    def __call__(self, *codes):
        self.codes += codes
        if self._num:
            self._num -= 1
            raise self._error
        return "served"


@pytest.mark.parametrize("of_command", REFUSALS)
@pytest.mark.parametrize("of_revival", ["no descriptor", "no space"])
@pytest.mark.parametrize("num", [1, 3])
def test_what_this_machine_refuses_a_revival_is_tried_again(of_command, of_revival, num):
    command, revive = Refusing(REFUSALS[of_command], 1), Refusing(REFUSALS[of_revival], num)

    assert TimedRetry("r", 60.0, revive).call_with_retry(command, lambda _: None) == "served"
    assert len(revive.codes) == num + 1
    assert revive.codes[0] == ("MISCONF" if of_command == "a failed sync" else "")


@pytest.mark.parametrize("of_revival", ["no descriptor", "no space"])
def test_what_it_refuses_for_good_is_an_outage(of_revival):
    revive = Refusing(REFUSALS[of_revival], 10**9)

    with pytest.raises(RedisUnreachableError, match="expected it to serve within"):
        TimedRetry("r", 0.01, revive).call_with_retry(Refusing(REFUSALS["no server"], 1), lambda _: None)
