"""New weights reach every live engine; a dead one does not stop training."""

from pathlib import Path

import pytest

from agent_layer.engines import join_engine, register_engine
from agent_layer.engines.policies import register_policy
from agent_layer.engines.registry import Engine, EngineRegistry
from agent_layer.errors import UnreachableError
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.recorder import open_recorder
from agent_layer.schema.training import PolicyVersion

DEAD = "http://127.0.0.1:9"


def make_entry(url):
    about = {"run": "r", "version": 0, "location": "base", "model": "m", "logprobs_mode": "raw", "state": "serving"}
    return Engine(url=url, epoch=0, **about)


@pytest.fixture
def registry(redis, keys):
    return EngineRegistry(redis, keys)


@pytest.fixture(scope="module")
def publish():
    """``publish(settings, run, redis, recorder)``: a publisher."""
    from trainer_adapter.verl.weights import WeightPublisher  # noqa: PLC0415  # torch takes seconds

    return WeightPublisher


@pytest.fixture
def publisher(settings, redis, keys, tmp_path, publish):
    recorder = open_recorder(settings)
    policy = PolicyVersion(run="r", number=1, location=str(tmp_path), created_at=0.0)
    register_policy(redis, keys, policy, recorder.append)
    yield publish(settings, "r", redis, recorder)
    recorder.close()


def test_a_dead_engine_of_several_is_left_behind_and_out_of_service(publisher, registry, tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with serve_in_thread(ScriptedEngine()) as one, serve_in_thread(ScriptedEngine()) as other:
        for url in (one.url, DEAD, other.url):
            registry.register(make_entry(url))
        publisher.serve(1)

    found = {engine.url: engine for engine in registry.engines()}
    assert Path(one.weights) == Path(other.weights) == tmp_path
    assert [(found[engine.url].state, found[engine.url].version) for engine in (one, other)] == [("serving", 1)] * 2
    assert found[one.url].tokenizer_hash
    assert found[DEAD].state == "loading"


@pytest.mark.parametrize("add", [register_engine, join_engine])
def test_an_engine_that_an_earlier_run_has_used_gets_the_weights_that_it_claims_to_have(
    settings, redis, publisher, tmp_path, add, publish
):
    """vLLM names the directory that it started from, also after other weights were loaded."""
    base = tmp_path / "base"
    base.mkdir()
    with serve_in_thread(ScriptedEngine(weights="of-another-run", root=str(base))) as engine:
        publisher = publish(settings, settings.run, redis, publisher._recorder)
        publisher.register_base(base)
        assert add(settings, redis, engine.url).version == 0
        publisher.serve(0)
        publisher.serve(0)

        assert engine.weights == str(base)
        assert engine.num_loads == 1


def test_an_engine_that_was_started_for_the_run_is_taken_at_its_word(settings, redis, publisher, tmp_path, publish):
    with serve_in_thread(ScriptedEngine(root=str(tmp_path))) as engine:
        publisher = publish(settings, settings.run, redis, publisher._recorder)
        publisher.register_base(tmp_path)
        register_engine(settings, redis, engine.url, location=str(tmp_path))
        publisher.serve(0)

        assert engine.num_loads == 0


@pytest.mark.parametrize("is_registered", [True, False], ids=["registered again", "answers again"])
@pytest.mark.parametrize("moment", ["drained", "loaded"])
def test_an_engine_that_starts_again_during_the_switch_gets_the_version_all_the_same(
    publisher, registry, monkeypatch, tmp_path, is_registered, moment
):
    """And no other is left draining or loading."""
    with serve_in_thread(ScriptedEngine()) as one, serve_in_thread(ScriptedEngine()) as other:
        for url in (one.url, other.url):
            registry.register(make_entry(url))
        _restart_once(publisher._board, monkeypatch, one.url, moment, make_entry if is_registered else None)
        publisher.serve(1)

    assert Path(one.weights) == Path(other.weights) == tmp_path
    assert {(engine.state, engine.version) for engine in registry.engines()} == {("serving", 1)}


def _restart_once(board, monkeypatch, url, moment, make):
    """Let an engine end and start again once, when its calls have ended or when it has loaded."""
    switch, left = type(board).switch, [True]

    def interrupt(board, at, version, location, load, seconds):
        def load_and_restart():
            if at != url or not left:
                return load()
            left.clear()
            model = load() if moment == "loaded" else None
            if make is None:
                raise UnreachableError("engine: it ended")
            board.register(make(url))
            return model

        return switch(board, at, version, location, load_and_restart, seconds)

    monkeypatch.setattr(type(board), "switch", interrupt)


def test_a_redis_that_forgets_the_versions_starts_none_again(publisher, redis, keys, tmp_path):
    publisher.find(1)
    redis.delete(keys.policies("r"))

    assert publisher.newest() == 1
    assert publisher.find(1).location == str(tmp_path)
    assert redis.hkeys(keys.policies("r")) == [b"1"]


def test_with_no_engine_left_the_trainer_hears_of_it(publisher, registry):
    registry.register(make_entry(DEAD))

    with pytest.raises(UnreachableError):
        publisher.serve(1)
