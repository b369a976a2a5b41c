"""The embedded Redis server: one for all users, private, durable, stopped with the last user."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from agent_layer.errors import BadInputError, UnreachableError
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.embedded import socket_path
from agent_layer.infra.redis.keys import Keys
from agent_layer.infra.redis.programs import find_redis_server, list_append_only_files
from agent_layer.settings import Settings

from ...processes import find_parent, is_running
from ...waiting import communicate, read_line, wait_until

_USER = """
import sys
from pathlib import Path
from agent_layer.settings import Settings
from agent_layer.infra.redis.client import open_redis
redis = open_redis(Settings(dir=Path(sys.argv[1]), connect_seconds=60))
redis.rpush("seen", sys.argv[2])
redis.execute_command("WAITAOF", 1, 0, 30_000)
print(redis.info("server")["process_id"], redis.config_get("port")["port"], redis.llen("seen"), flush=True)
sys.stdin.read()
"""


def use(directory: Path, name: str) -> tuple[subprocess.Popen[str], int, int, int]:
    """Start a user of the server; return the process, the server's pid, its port, and how many users wrote so far."""
    command = [sys.executable, "-c", _USER, str(directory), name]
    user = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid, port, num_seen = map(int, read_line(user).split())
    return user, pid, port, num_seen


def end(user: subprocess.Popen[str], *, kill: bool = False) -> None:
    if kill:
        user.send_signal(signal.SIGKILL)
    communicate(user)


def test_users_share_one_server_that_survives_the_death_of_one_and_ends_with_the_last(tmp_path, wait_until):
    first, pid, port, _ = use(tmp_path, "first")
    second, same_pid, _, num_seen = use(tmp_path, "second")

    assert (same_pid, port, num_seen) == (pid, 0, 2)
    end(first, kill=True)
    with open_redis(Settings(redis_url=f"unix://{socket_path(tmp_path / 'redis')}")) as redis:
        assert redis.ping()
    end(second, kill=True)
    wait_until(lambda: not is_running(pid))
    third, _, _, num_seen = use(tmp_path, "third")

    assert num_seen == 3, "what was written is there afterwards"
    end(third)


def test_a_killed_server_is_started_again_with_all_that_it_knew(tmp_path, wait_until):
    user, pid, _, _ = use(tmp_path, "first")
    wait_until(lambda: list_append_only_files(tmp_path / "redis")[-1].stat().st_size > 0)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid))
    another, new_pid, _, num_seen = use(tmp_path, "second")

    assert new_pid != pid
    assert num_seen == 2
    end(user)
    end(another)
    wait_until(lambda: not is_running(new_pid))


def read_state(pid: int) -> str:
    """One letter: T for a stopped process, Z for one that has ended and was not waited for."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def servers_in(directory: Path) -> list[int]:
    """Return the pids of servers with a socket in this directory; their process title names it."""
    titles: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # processes of others come and go
            titles[int(path.parent.name)] = path.read_bytes().decode(errors="replace")
    return [
        pid
        for pid, title in titles.items()
        if title.partition(" ")[0].endswith(("redis-server", "valkey-server")) and str(directory) in title
    ]


def test_a_server_whose_keeper_is_killed_ends_and_its_users_start_both_again(tmp_path, wait_until):
    user, pid, _, _ = use(tmp_path, "first")
    with open_redis(Settings(dir=tmp_path)) as redis:
        os.kill(find_parent(pid), signal.SIGKILL)
        wait_until(lambda: not is_running(pid))

        assert redis.lrange("seen", 0, -1) == [b"first"]
        assert redis.info("server")["process_id"] != pid
    end(user)


def test_a_server_that_is_being_started_again_is_not_started_twice(tmp_path, wait_until):
    user, pid, _, _ = use(tmp_path, "first")
    keeper = find_parent(pid)
    os.kill(keeper, signal.SIGSTOP)
    wait_until(lambda: read_state(keeper) == "T")  # before, it might still see its server die
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: read_state(pid) == "Z")
    with pytest.raises(UnreachableError, match="own Redis server"):
        open_redis(Settings(dir=tmp_path, connect_seconds=0.2))
    os.kill(keeper, signal.SIGCONT)
    another, new_pid, _, num_seen = use(tmp_path, "second")

    assert num_seen == 2
    assert servers_in(tmp_path) == [new_pid]
    end(user)
    end(another)


def test_users_that_come_at_once_get_the_same_server(tmp_path):
    command = [sys.executable, "-c", _USER, str(tmp_path), "one"]
    users = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    pids = {read_line(user).split()[0] for user in users}

    assert len(pids) == 1
    for user in users:
        end(user)


def test_the_socket_is_private_and_short_in_a_deep_directory(tmp_path):
    deep = tmp_path / ("d" * 100) / "redis"
    deep.mkdir(parents=True)

    path = socket_path(deep)

    assert len(str(path)) < 100
    assert path == socket_path(deep)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.parent.rmdir()


def test_clients_give_bytes(settings, redis):
    key = Keys(settings.namespace).ordinals
    redis.set(key, "1")

    assert redis.get(key) == b"1"


def test_an_unreachable_server_is_named_without_its_password():
    with pytest.raises(UnreachableError, match=r"redis://127\.0\.0\.1:1/0: expected an answer") as caught:
        open_redis(Settings(redis_url="redis://someone:secret@127.0.0.1:1/0", connect_seconds=1))
    assert "secret" not in str(caught.value)


def test_a_url_with_an_unknown_parameter_is_refused():
    with pytest.raises(BadInputError, match="expected redis://HOST:PORT"):
        open_redis(Settings(redis_url="redis://127.0.0.1?nonsense=1"))


def test_a_server_program_that_does_not_exist_is_named():
    with pytest.raises(BadInputError, match="AGENT_LAYER_REDIS_SERVER"):
        find_redis_server(Settings(redis_server="/no/such/redis-server"))


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(BadInputError, match="choose another --dir"):
        open_redis(Settings(dir=tmp_path / "file" / "below"))


def write_old(start_redis, name, directory) -> dict[Path, bytes]:
    """Let a server of another make write; return its files."""
    directory.mkdir(parents=True, mode=0o700)
    with Redis.from_url(start_redis(name, "--dir", str(directory))) as redis:
        redis.rpush("seen", "old")
        redis.hset("h", mapping={f"f{n}": n for n in range(1000)})
        redis.xadd("s", {"a": "1"})
        redis.bgrewriteaof()
        wait_until(lambda: not redis.info("persistence")["aof_rewrite_in_progress"])
        redis.set("after", "rewrite")
        with suppress(RedisConnectionError):
            redis.shutdown()
    return {path: path.read_bytes() for path in list_append_only_files(directory)}


@pytest.mark.parametrize("name", ["redis6", pytest.param("redis7", marks=pytest.mark.long)])
def test_a_directory_of_an_older_server_opens_one_way_and_its_files_stay(
    start_redis, redis_programs, tmp_path, wait_until, name
):
    directory = tmp_path / "redis"
    before = write_old(start_redis, name, directory)

    user, pid, _, num_seen = use(tmp_path, "new")
    with Redis(unix_socket_path=str(socket_path(directory))) as redis:
        assert (redis.get("after"), redis.hlen("h"), redis.xlen("s")) == (b"rewrite", 1000, 1)
    end(user)
    wait_until(lambda: not is_running(pid))

    assert num_seen == 2
    (kept,) = directory.glob("kept-redis-*")
    assert {kept / path.relative_to(directory): content for path, content in before.items()} == {
        path: path.read_bytes() for path in list_append_only_files(kept)
    }
    now = {path: path.read_bytes() for path in list_append_only_files(directory)}
    with pytest.raises(BadInputError, match="expected a server that can read what valkey"):
        open_redis(Settings(dir=tmp_path, redis_server=redis_programs[name], connect_seconds=60))
    assert now == {path: path.read_bytes() for path in list_append_only_files(directory)}
