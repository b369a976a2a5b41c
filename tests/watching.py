"""What scripts cost the server: commands by name, and how long they block it, independent of the machine's speed."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis

from agent_layer.infra import Keys

__all__ = ["WatchedRedis", "count_commands"]

YARDSTICK = "for number = 1, 10000 do redis.call('HGET', KEYS[1], number % 100) end"
"""A script of known length, the unit of measurement: a slow or busy machine stretches both alike."""


@contextmanager
def count_commands(redis: Redis, keys: Keys) -> Iterator[Counter[str]]:
    """Yield what is filled at the end: how often each command ran on keys of a namespace, in scripts, too."""
    counts, end = Counter[str](), f"end of {keys.namespace}"
    with redis.monitor() as seen:
        yield counts
        redis.echo(end)
        for command in iter(lambda: seen.next_command()["command"], f"ECHO {end}"):
            if keys.namespace in command:
                counts[command.partition(" ")[0].lower()] += 1
    del counts["evalsha"]


class WatchedRedis(Redis):
    """Keeps what scripts were given, and how long they and large reads kept the server's processor."""

    max_allowed = 10.0
    """Turns of the yardstick, which takes some 4 ms. The longest script takes 3.4 on one processor and 4.9 on another;
    one that is not cut into pages takes 40."""
    took: tuple[float, ...] = ()
    given: tuple[bytes, ...] = ()

    def execute_command(self, *args, **options):
        if args[0] not in ("EVALSHA", "MGET"):
            return super().execute_command(*args, **options)
        before = self._cpu_seconds()
        answer = super().execute_command(*args, **options)
        self.took += (self._cpu_seconds() - before,)
        if isinstance(args[-1], bytes):
            self.given += (args[-1],)
        return answer

    def _cpu_seconds(self) -> float:
        info = super().execute_command("INFO", "cpu")
        return info["used_cpu_user"] + info["used_cpu_sys"]

    def longest(self, act) -> float:
        """The longest of the scripts that ``act`` runs, in turns of the yardstick; each the least of several turns."""
        self._once(act)  # the server learns the scripts
        turns, yards = [], []
        while len(turns) < 3 or ((longest := _longest(turns) / min(yards)) > self.max_allowed and len(turns) < 10):
            yards.append(self._yard())
            turns.append(self._once(act))
        return longest

    def _yard(self) -> float:
        before = self._cpu_seconds()
        self.eval(YARDSTICK, 1, "no such key")
        return self._cpu_seconds() - before

    def _once(self, act) -> tuple[float, ...]:
        self.took, self.given = (), ()
        act()
        return self.took

    def assert_short(self, acts) -> None:
        """No script of any of the acts takes longer than scripts may."""
        took = {name: self.longest(act) for name, act in acts.items()}
        print({name: round(longest, 2) for name, longest in took.items()})  # noqa: T201  # figures for who looks
        assert {name: longest for name, longest in took.items() if longest > self.max_allowed} == {}


def _longest(turns: list[tuple[float, ...]]) -> float:
    return max(min(took) for took in zip(*turns, strict=True))
