"""veRL's servers as engines of the gateway: those that hold a version serve it, others get no calls."""

import secrets

import pytest

from agent_layer.engines import open_engine_registry
from agent_layer.errors import EngineError
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from trainer_adapter.cluster.weights.fleet import EngineFleet


@pytest.fixture
def make_fleet(settings, redis, tmp_path):
    """``make_fleet(engines, missed)``: servers; those in the list never confirm a version."""

    def make_fleet(engines, missed):
        access_keys = {one.url: one.access_key for one in engines}
        return EngineFleet(settings, settings.run, redis, tmp_path, access_keys, lambda _: list(missed))

    return make_fleet


def guarded():
    """A server that asks for a key of its own."""
    return ScriptedEngine(access_key=secrets.token_hex(8))


@pytest.fixture
def shown(settings, redis):
    registry = open_engine_registry(settings, redis)
    return lambda: {engine.url: (engine.state, engine.version) for engine in registry.engines()}


def test_a_server_that_does_not_confirm_a_version_gets_no_calls_until_it_does(make_fleet, shown):
    with serve_in_thread(guarded()) as one, serve_in_thread(guarded()) as other:
        missed = []
        fleet = make_fleet([one, other], missed)
        fleet.serve(0)
        assert shown() == {one.url: ("serving", 0), other.url: ("serving", 0)}

        missed.append(other.url)
        fleet.serve(1)
        assert shown() == {one.url: ("serving", 1), other.url: ("loading", 0)}

        missed.clear()
        fleet.serve(2)
        assert shown() == {one.url: ("serving", 2), other.url: ("serving", 2)}


def test_calls_name_the_adapter_of_a_server_that_has_one_and_the_model_of_another(make_fleet, settings, redis):
    adapted = ScriptedEngine(access_key=secrets.token_hex(8), adapter="scripted-lora")
    with serve_in_thread(guarded()) as whole, serve_in_thread(adapted) as one, serve_in_thread(guarded()) as new:
        fleet = make_fleet([whole, one], [])
        fleet.serve(0)
        fleet.serve(1)

        engines = open_engine_registry(settings, redis).engines()
        assert {engine.url: engine.model for engine in engines} == {whole.url: "scripted", one.url: "scripted-lora"}

        new.adapter = "scripted-lora"
        fleet.replace([one.url], lambda: {new.url: new.access_key})
        engines = open_engine_registry(settings, redis).engines()
        assert {engine.url: engine.model for engine in engines} == {whole.url: "scripted", new.url: "scripted-lora"}


def test_a_version_that_no_server_confirms_is_an_error(make_fleet, shown):
    with serve_in_thread(guarded()) as one:
        missed = []
        fleet = make_fleet([one], missed)
        fleet.serve(0)
        missed.append(one.url)

        with pytest.raises(EngineError, match="no server confirms"):
            fleet.serve(1)
        assert shown() == {one.url: ("loading", 0)}


def test_a_dead_server_is_replaced_by_one_with_the_present_version_and_its_own_key(make_fleet, shown, settings, redis):
    registry = open_engine_registry(settings, redis)
    with serve_in_thread(guarded()) as one, serve_in_thread(guarded()) as new:
        with serve_in_thread(guarded()) as dead:
            fleet = make_fleet([one, dead], [])
            fleet.serve(4)
        assert registry.access_keys() == {one.url: one.access_key, dead.url: dead.access_key}
        seen = []

        def relaunch():
            seen.append(shown())
            return {new.url: new.access_key}

        fleet.replace([dead.url], relaunch)

        assert seen == [{one.url: ("loading", 4), dead.url: ("loading", 4)}]
        assert shown() == {one.url: ("serving", 4), new.url: ("serving", 4)}
        assert registry.access_keys() == {one.url: one.access_key, new.url: new.access_key}
        fleet.serve(5)
        assert shown() == {one.url: ("serving", 5), new.url: ("serving", 5)}
        fleet.remove()
        assert registry.access_keys() == {}


def test_a_new_server_at_the_address_of_a_dead_one_stays(make_fleet, shown, settings, redis):
    registry = open_engine_registry(settings, redis)
    with serve_in_thread(guarded()) as one, serve_in_thread(guarded()) as again:
        fleet = make_fleet([one, again], [])
        fleet.serve(4)

        fleet.replace([again.url], lambda: {again.url: again.access_key})

        assert shown() == {one.url: ("serving", 4), again.url: ("serving", 4)}
        assert registry.access_keys() == {one.url: one.access_key, again.url: again.access_key}
