"""Directories whose names mean something in a URL: each holds its own state and no other's."""

import pytest

from agent_layer.errors import BadInputError
from agent_layer.infra import open_objects, open_redis
from agent_layer.settings import Settings, load_settings


@pytest.mark.parametrize("name", ["x#y", "x?y", "x%y", "x%2fy", "x y", "x+y"])
def test_a_directory_answers_with_what_was_written_into_it(tmp_path, name):
    settings = Settings(dir=tmp_path / name, connect_seconds=30)
    objects = open_objects(settings)

    with open_redis(settings) as redis:
        redis.set("whose", name)
        socket = redis.connection_pool.connection_kwargs["path"]
    objects.put("whose", name.encode())

    assert socket == str(tmp_path / name / "redis" / "redis.sock")
    assert objects.get("whose") == name.encode()
    assert (tmp_path / name / "objects" / "whose").read_text() == name
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_directory_never_answers_with_the_trajectories_of_another(tmp_path):
    mine, other = Settings(dir=tmp_path / "x%2fy", connect_seconds=30), Settings(dir=tmp_path / "x" / "y")

    with open_redis(other.model_copy(update={"connect_seconds": 30})) as redis, open_redis(mine) as own:
        redis.set("whose", "other")

        assert own.get("whose") is None


@pytest.mark.parametrize("url", ["s3://bucket/a#b", "s3://bucket/a?b", "file:///a#b", "file:///a?b"])
def test_an_address_of_objects_that_would_be_cut_off_is_refused(url):
    with pytest.raises(BadInputError, match="objects_url: expected no"):
        load_settings(objects_url=url)


def test_a_socket_whose_address_would_be_cut_off_is_refused():
    with pytest.raises(BadInputError, match="redis_url: expected no '#'"):
        open_redis(Settings(redis_url="unix:///tmp/a#b.sock"))
