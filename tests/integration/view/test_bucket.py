"""A bucket alone, without the Redis that knew it: the same numbers, and no queue, which the answer says."""

import pytest

from agent_layer.cli.services.view import archive_settings, open_shown
from agent_layer.cli.store.acl import acl_rules
from agent_layer.dispatcher import Dispatcher
from agent_layer.errors import NotFoundError
from agent_layer.infra.objects import open_objects
from agent_layer.infra.redis import Keys
from agent_layer.schema.task import Task
from agent_layer.store import Store, open_store
from agent_layer.view.reads import ROUTES, Asked, Source, show_fleet_state

from ...builders import attempt, call, closed_group, sampled
from ...stored import write_segment

_PLACES = {"run": "r", "step": "0", "trajectory": "a.0-0", "group": "g"}
_ASKED = {"a": ["a.0-0"], "b": ["a.1-0"], "by": ["run"], "text": ["answer"]}
_OF_THE_QUEUE = {"/workers", "/queue", "/dead", "/sandboxes", "/engines"}
_OF_NOW = {"/info", "/runs/{run}/updates/{step}"}


@pytest.fixture
def both(settings, redis, s3_endpoint, tmp_path):
    """The same runs twice: with their Redis, and from their bucket alone."""
    url = f"s3://tests/{settings.namespace}/some/prefix"
    settings = settings.model_copy(update={"objects_url": url, "s3_endpoint_url": s3_endpoint})
    live = Store(settings, redis, open_objects(settings))
    for member in range(2):
        name = f"a.{member}-0"
        write_segment(live, *attempt(name, *call(name, "a", sampled(1, 2 + member)), score=float(member), group_id="g"))
    write_segment(live, closed_group("g", "a.0-0", "a.1-0", group_size=2, num_launched=2))
    alone = archive_settings(settings, url, tmp_path / "alone")
    store = open_store(alone)
    assert store.admin.reindex().corrupt == []
    return Source(settings, live), Source(alone, store, is_archive=True)


def test_numbers_are_those_of_the_live_store(both):
    read = [route for route in ROUTES if route.path not in _OF_THE_QUEUE | _OF_NOW]
    asked = [Asked(_PLACES, {name: _ASKED[name] for name in route.parameters if name in _ASKED}) for route in read]
    live, alone = ([route.read(source, one) for route, one in zip(read, asked, strict=True)] for source in both)

    assert len(read) > 15
    assert alone == live


def test_what_only_a_queue_knows_is_refused_with_a_sentence(both):
    for route in ROUTES:
        if route.path in _OF_THE_QUEUE:
            with pytest.raises(NotFoundError, match="a bucket alone"):
                route.read(both[1], Asked({}, {}))


def test_the_stream_of_events_looks_at_no_queue(both):
    assert show_fleet_state(both[1]) is None


def test_a_cooled_namespace_is_shown_from_its_bucket_and_says_so(both, capsys):
    live, alone = both
    read = [route for route in ROUTES if route.path in {"/runs", "/trajectories/{trajectory}", "/groups/{group}"}]
    before = [route.read(alone, Asked(_PLACES, {})) for route in read]
    with open_shown(live.settings, demo=False, bucket=None) as shown:
        assert not shown.is_archive
    assert live.store.admin.offload() == 2
    capsys.readouterr()

    with open_shown(live.settings, demo=False, bucket=None) as shown:
        source = Source(shown.settings, shown.store, is_archive=shown.is_archive)
        assert [route.read(source, Asked(_PLACES, {})) for route in read] == before
        assert shown.is_archive
    told = capsys.readouterr().out
    assert "Redis holds no run" in told
    assert f"segments of {live.settings.objects_url}" in told
    assert live.store.redis.scard(live.store.keys.runs) == 0


def test_work_that_waits_keeps_the_page_live(both):
    live, _ = both
    live.store.admin.offload()
    Dispatcher(live.store.redis, live.settings).submit([Task(id="t", run="next", input="what?")])

    with open_shown(live.settings, demo=False, bucket=None) as shown:
        assert not shown.is_archive


@pytest.mark.parametrize("role", ["reader", "trainer"])
def test_an_empty_store_is_live_whatever_its_reader_may_ask(settings, redis, role):
    redis.execute_command("ACL", "SETUSER", role, *acl_rules(role, Keys(settings.namespace), 6.2), ">word")
    url = settings.redis_url.replace("://", f"://{role}:word@")
    settings = settings.model_copy(update={"redis_url": url})
    with open_shown(settings, demo=False, bucket=None) as shown:
        assert not shown.is_archive
