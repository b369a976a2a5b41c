"""Work that is killed at each of its points in turn: before and after every write of an object or command of Redis."""

import os
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

from redis import Redis

from agent_layer.infra.objects.filesystem import DirectoryObjects

from ..waiting import join

__all__ = ["KillPoint", "MortalObjects", "MortalRedis", "run_until_killed"]


class KillPoint:
    """Kills this process when it reaches its n-th point, and leaves the name of that point in a file."""

    def __init__(self, number: int, diary: Path) -> None:
        self._left, self._diary = number, diary

    def reach(self, name: str) -> None:
        self._left -= 1
        if self._left < 0:
            self._diary.write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)


class MortalObjects(DirectoryObjects):
    """A point before each change of an object, and one after it."""

    kill_point: KillPoint

    def put(self, key: str, content: bytes) -> None:
        self.kill_point.reach("before PUT")
        super().put(key, content)
        self.kill_point.reach("after PUT")

    def delete(self, key: str) -> None:
        self.kill_point.reach("before DELETE")
        super().delete(key)
        self.kill_point.reach("after DELETE")


class MortalRedis(Redis):
    """A point before each command, and one after the server carried it out."""

    kill_point: KillPoint

    def execute_command(self, *args: object, **options: object) -> object:
        name = f"{args[0]} {str(args[1])[:8]}" if args[0] == "EVALSHA" else str(args[0])
        self.kill_point.reach(f"before {name}")
        answer = super().execute_command(*args, **options)
        self.kill_point.reach(f"after {name}")
        return answer


def run_until_killed(
    number: int, work: Callable[[MortalRedis, MortalObjects], object], redis: Redis, directory: Path, diary: Path
) -> str | None:
    """Run ``work`` in a process that is killed at its n-th point.

    Args:
        redis: the server.
        directory: where the objects lie.
        diary: a file of the test's own.

    Returns: the name of the point; None: the work ended before it.
    """
    victim = get_context("fork").Process(target=_work, args=(number, work, redis, directory, diary))
    victim.start()
    join(victim)
    assert victim.exitcode in (0, -signal.SIGKILL)
    return diary.read_text() if victim.exitcode else None


def _work(
    number: int, work: Callable[[MortalRedis, MortalObjects], object], redis: Redis, directory: Path, diary: Path
) -> None:
    mortal_redis, mortal_objects = MortalRedis(connection_pool=redis.connection_pool), MortalObjects(directory)
    mortal_redis.kill_point = mortal_objects.kill_point = KillPoint(number, diary)
    work(mortal_redis, mortal_objects)
