"""A bucket alone, without the Redis that knew it: the same numbers, and no queue, which the answer says."""

from functools import partial

import msgspec
import pytest

from agent_layer.cli.query.omissions import describe_left_out
from agent_layer.cli.services.view import archive_settings, open_shown
from agent_layer.cli.store.acl import acl_rules
from agent_layer.dispatcher import Dispatcher
from agent_layer.errors import NotFoundError
from agent_layer.infra import Keys, open_objects
from agent_layer.schema.task import Task
from agent_layer.store import Store, open_store
from agent_layer.view import ReadContext, RequestParams
from agent_layer.view.reads.archive import source_for
from agent_layer.view.reads.fleet import show_fleet_state
from agent_layer.view.reads.routes import ROUTES

from ...builders import attempt, call, closed_group, sampled
from ...stored import lose_index, put_segment, write_segment

_PLACES = {"run": "r", "step": "0", "trajectory": "a.0-0", "group": "g"}
_QUERY = {"a": ["a.0-0"], "b": ["a.1-0"], "by": ["run"], "text": ["answer"]}
_OF_THE_QUEUE = {"/workers", "/queue", "/dead", "/sandboxes", "/engines"}
_OF_NOW = {"/info", "/runs/{run}/updates/{step}"}


@pytest.fixture
def both(settings, redis, tmp_path):
    """The same runs twice: with their Redis, and from their bucket alone."""
    url = f"file://{tmp_path}/bucket/some/prefix"
    settings = settings.model_copy(update={"objects_url": url})
    live = Store(settings, redis, open_objects(settings))
    for member in range(2):
        name = f"a.{member}-0"
        write_segment(live, *attempt(name, *call(name, "a", sampled(1, 2 + member)), score=float(member), group_id="g"))
    write_segment(live, closed_group("g", "a.0-0", "a.1-0", group_size=2, num_launched=2))
    beside = {"redis_url": f"{settings.redis_url}?db=1"}  # as good as the server that a page starts for a bucket
    alone = archive_settings(settings, url, tmp_path / "alone").model_copy(update=beside)
    store = open_store(alone)
    assert store.admin.reindex().corrupt == []
    return ReadContext(settings, live), ReadContext(alone, store, is_archive=True)


def test_numbers_are_those_of_the_live_store(both):
    read = [route for route in ROUTES if route.path not in _OF_THE_QUEUE | _OF_NOW]
    questions = [
        RequestParams(_PLACES, {name: _QUERY[name] for name in route.parameters if name in _QUERY}) for route in read
    ]
    live, alone = ([route.read(source, one) for route, one in zip(read, questions, strict=True)] for source in both)

    assert len(read) > 15
    assert alone == live


def test_what_only_a_queue_knows_is_refused_with_a_sentence(both):
    for route in ROUTES:
        if route.path in _OF_THE_QUEUE:
            with pytest.raises(NotFoundError, match="a bucket alone"):
                route.read(both[1], RequestParams({}, {}))


def test_the_stream_of_events_looks_at_no_queue(both):
    assert show_fleet_state(both[1]) is None


def test_a_cooled_namespace_is_shown_from_its_bucket_and_says_so(both, capsys):
    live, alone = both
    read = [route for route in ROUTES if route.path in {"/runs", "/trajectories/{trajectory}", "/groups/{group}"}]
    before = [route.read(alone, RequestParams(_PLACES, {})) for route in read]
    with open_shown(live.settings, demo=False, bucket=None) as shown:
        assert not shown.is_archive
    assert live.store.admin.offload() == 2
    capsys.readouterr()

    with open_shown(live.settings, demo=False, bucket=None) as shown:
        assert [route.read(shown, RequestParams(_PLACES, {})) for route in read] == before
        assert shown.is_archive
    answer = capsys.readouterr().out
    assert "Redis holds no run" in answer
    assert f"segments of {live.settings.objects_url}" in answer
    assert live.store.redis.scard(live.store.keys.runs) == 0


@pytest.fixture
def partly(both, capsys):
    """A store whose Redis was cooled, and has had another run since; as the page opens it."""
    live, alone = both
    assert live.store.admin.offload() == 2
    write_segment(live.store, *attempt("b.0-0", *call("b.0-0", "b", sampled(1, 9)), run="later", score=1.0))
    capsys.readouterr()
    with open_shown(live.settings, demo=False, bucket=None) as shown:
        yield shown, alone


def ask(source, path, query=(), **places):
    (route,) = [one for one in ROUTES if one.path == path]
    request = RequestParams(places, {name: [value] for name, value in dict(query).items()})
    return route.read(source_for(source, request), request)


def test_runs_that_redis_lacks_are_read_from_the_bucket(partly, capsys):
    shown, alone = partly
    assert "lacks 2 trajectories of 1 run" in capsys.readouterr().out
    assert not shown.is_archive
    assert shown.store.redis.smembers(shown.store.keys.runs) == {b"later"}
    lines = {line.run: line for line in ask(shown, "/runs").items}
    assert {run: (line.is_cooled, line.num_cooled) for run, line in lines.items()} == {
        "r": (True, 2),
        "later": (False, 0),
    }
    (before,) = [line for line in ask(alone, "/runs").items if line.run == "r"]
    assert msgspec.structs.replace(lines["r"], is_cooled=False, num_cooled=0) == before
    assert ask(shown, "/info").cooled_runs == ["r"]
    for path in ("/runs/{run}/updates", "/runs/{run}/progress", "/groups/{group}", "/trajectories/{trajectory}/tokens"):
        assert ask(shown, path, **_PLACES) == ask(alone, path, **_PLACES)
    assert ask(shown, "/runs/{run}", run="r").is_cooled
    assert ask(shown, "/trajectories/{trajectory}", trajectory="a.1-0").is_cooled
    assert not ask(shown, "/trajectories/{trajectory}", trajectory="b.0-0").is_cooled


def test_a_question_that_names_no_run_is_answered_by_redis(partly):
    shown, alone = partly
    words = {"run": "r", "text": "answer"}
    assert ask(shown, "/search", words).items == ask(alone, "/search", words).items
    assert [row.trajectory_id for row in ask(shown, "/query").items] == ["b.0-0"]
    assert len(ask(shown, "/query", {"run": "r"}).items) == 2
    assert ask(shown, "/count", {"run": "later"}).count == 1
    diff = ask(shown, "/diff", {"a": "a.0-0", "b": "b.0-0"})
    assert (diff.a.run, diff.b.run) == ("r", "later")
    with pytest.raises(NotFoundError, match="namespace"):
        ask(shown, "/trajectories/{trajectory}", trajectory="none-0")


def test_a_run_that_both_have_is_shown_once_and_says_what_is_missing(partly):
    shown, _ = partly
    write_segment(shown.store, *attempt("a.9-0", *call("a.9-0", "c", sampled(1, 9)), score=1.0))
    lines = [line for line in ask(shown, "/runs").items if line.run == "r"]
    assert [(line.is_cooled, line.num_cooled, line.num_trajectories) for line in lines] == [(False, 2, 1)]
    run = ask(shown, "/runs/{run}", run="r")
    assert (run.is_cooled, run.num_cooled, run.counts.trajectories) == (False, 2, 1)
    assert ask(shown, "/info").cooled_runs == []
    assert ask(shown, "/trajectories/{trajectory}", trajectory="a.0-0").row.run == "r"


def test_a_segment_on_its_way_is_no_run_that_redis_lacks(both, capsys):
    live, _ = both
    put_segment(live.store, *attempt("a.0-0", *call("a.0-0", "a", sampled(1, 2)), score=0.0, group_id="g"))
    capsys.readouterr()
    with open_shown(live.settings, demo=False, bucket=None) as shown:
        assert shown.cooled is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("is_lost", [False, True])
def test_commands_say_what_they_leave_out(both, is_lost):
    live, _ = both
    if is_lost:
        lose_index(live.store)
    else:
        live.store.admin.offload()
    write_segment(live.store, *attempt("b.0-0", *call("b.0-0", "b", sampled(1, 9)), run="later", score=1.0))
    answer = partial(describe_left_out, live.settings, live.store)

    assert "reindex" in answer("r", is_empty=True)
    assert ("of r;" in (answer(None, is_empty=False) or "")) is not is_lost
    assert is_lost or answer("later", is_empty=False) is None
    live.store.admin.reindex()
    assert answer("r", is_empty=True) is answer(None, is_empty=False) is None


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
