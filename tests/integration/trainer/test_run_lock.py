"""One trainer of a run at one Redis: who is refused, who takes over at once, and what an end leaves."""

from pathlib import Path

import pytest
from redis import Redis

from agent_layer.errors import BadInputError
from agent_layer.infra import open_redis
from agent_layer.settings import Settings
from trainer_adapter.loop.run_lock import claim_run


@pytest.fixture
def elsewhere(settings: Settings, tmp_path: Path) -> Settings:
    """Of another directory at the same Redis."""
    return settings.model_copy(update={"dir": tmp_path / "elsewhere", "redis_url": settings.redis_url})


def test_a_killed_trainer_is_replaced_at_once_in_its_directory_whatever_the_path_to_it(redis, settings, keys, tmp_path):
    (tmp_path / "link").symlink_to(settings.dir)
    with claim_run(redis, settings, "r"):
        name = redis.get(keys.trainer("r"))
    redis.set(keys.trainer("r"), name, ex=60)  # what kill -9 leaves

    with claim_run(redis, settings.model_copy(update={"dir": tmp_path / "link"}), "r"):
        pass

    assert not redis.exists(keys.trainer("r"))


def test_another_directory_is_refused_until_the_first_trainer_has_ended(redis, settings, elsewhere):
    refused = pytest.raises(BadInputError, match="expected no other trainer at this Redis")
    with claim_run(redis, settings, "r"), claim_run(redis, elsewhere, "other"), refused:
        claim_run(redis, elsewhere, "r").__enter__()

    with claim_run(redis, elsewhere, "r"):
        pass


def test_an_end_leaves_the_name_of_another_trainer(redis, settings, keys):
    with claim_run(redis, settings, "r"):
        redis.set(keys.trainer("r"), "/b on other")

    assert redis.get(keys.trainer("r")) == b"/b on other"


def test_an_end_without_redis_is_no_other_end(start_redis, tmp_path):
    settings = Settings(dir=tmp_path, redis_url=start_redis("carried"), retry_seconds=0.1)

    with open_redis(settings) as redis, claim_run(redis, settings, "r"):
        Redis.from_url(settings.redis_url).shutdown(nosave=True)
