"""Calls go where their cache is, unless that is much worse than elsewhere."""

from hypothesis import given, strategies as st

from agent_layer.engines.registry import Engine
from agent_layer.gateway.engines.metrics import read_gauges
from agent_layer.gateway.engines.pool import Rotation
from agent_layer.gateway.engines.routing import Load, choose_engine

loads_of_engines = st.lists(
    st.builds(
        Load,
        url=st.sampled_from([f"http://e{index}" for index in range(6)]),
        in_flight=st.integers(0, 40),
        others=st.integers(0, 40),
        waiting=st.integers(0, 5),
        cache_usage=st.floats(0, 1),
        is_well=st.booleans(),
        turn=st.integers(0, 5),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda load: load.url,
)


@given(loads_of_engines)
def test_a_new_rollout_goes_where_nobody_is_less_busy(loads):
    chosen = choose_engine(loads, None)

    alike = [load for load in loads if (load.is_well, load.is_full) == (chosen.is_well, chosen.is_full)]
    assert chosen.num_calls == min(load.num_calls for load in alike)
    assert chosen.is_well == any(load.is_well for load in loads)


@given(loads_of_engines, st.data())
def test_a_rollout_leaves_its_engine_only_for_a_better_one(loads, data):
    own = data.draw(st.sampled_from(loads))
    chosen = choose_engine(loads, own.url)

    if chosen is not own:
        worse = (not own.is_well, own.is_full, own.num_calls)
        assert worse > (not chosen.is_well, chosen.is_full, chosen.num_calls)


@given(loads_of_engines, st.data())
def test_an_engine_that_is_well_and_not_much_busier_is_kept(loads, data):
    own = data.draw(st.sampled_from(loads))
    own.is_well, own.cache_usage = True, 0.5
    own.in_flight, own.others = min(load.num_calls for load in loads) + 8, 0

    assert choose_engine(loads, own.url) is own


@given(loads_of_engines)
def test_an_engine_that_is_gone_is_as_none(loads):
    assert choose_engine(loads, "http://gone") is choose_engine(loads, None)


def make_engine(url, **fields):
    about = {"run": "r", "version": 0, "location": "w", "model": "m", "logprobs_mode": "raw", "state": "serving"}
    return Engine(url=url, epoch=0, **{**about, **fields})


def chosen(rotation, run, times=20):
    engines = [rotation.choose(run, None) for _ in range(times)]
    return {engine.url for engine in engines if engine}


def test_idle_engines_take_turns():
    rotation = Rotation("r")
    rotation.update([make_engine("a"), make_engine("b"), make_engine("c")], {})

    assert sorted(rotation.choose("r", None).url for _ in range(6)) == ["a", "a", "b", "b", "c", "c"]


def test_a_run_is_answered_by_its_own_engines_and_one_without_by_the_gateways():
    rotation = Rotation("home")
    rotation.update(
        [make_engine("a", run="home"), make_engine("b", run="r"), make_engine("c", run="r", state="loading")], {}
    )

    assert chosen(rotation, "r") == {"b"}
    assert chosen(rotation, "home") == chosen(rotation, "trial") == {"a"}


def test_a_run_whose_engines_are_away_is_not_answered_by_foreign_weights():
    rotation = Rotation("home")
    rotation.update([make_engine("a", run="home"), make_engine("b", run="r", state="draining")], {})

    assert chosen(rotation, "r") == set()
    assert "b is draining" in rotation.explain_none("r", 1)


def test_engines_too_far_behind_get_no_calls():
    rotation = Rotation("r", max_staleness=1)
    rotation.update([make_engine("a", version=4), make_engine("b", version=5), make_engine("c", version=3)], {"r": 5})

    assert chosen(rotation, "r") == {"a", "b"}


def test_only_named_and_joined_engines_are_used_and_drained_ones_are_not():
    rotation = Rotation("r", ["a", "d"])
    joined = make_engine("c", is_joined=True)
    rotation.update([make_engine("a"), make_engine("b"), joined, make_engine("d", is_drained=True)], {})

    assert chosen(rotation, "r") == {"a", "c"}


def test_a_failed_engine_is_the_last_resort_until_it_is_well():
    rotation = Rotation("r")
    rotation.update([make_engine("a"), make_engine("b")], {})
    rotation.record_failure("a")
    assert chosen(rotation, "r") == {"b"}
    rotation.record_failure("b")
    assert chosen(rotation, "r") == {"a", "b"}
    rotation.record_success("a", None)
    assert chosen(rotation, "r") == {"a"}


def test_own_calls_are_not_counted_twice():
    rotation = Rotation("r")
    rotation.update([make_engine("a")], {})
    load = rotation.get_load("a")
    load.in_flight = 3
    rotation.record_success("a", read_gauges('vllm:num_requests_running{engine="0"} 4.0\n'))

    assert (load.others, load.num_calls) == (1, 4)


def test_gauges_of_replicas_add_up():
    gauges = read_gauges(
        "# HELP vllm:num_requests_running Number\n"
        'vllm:num_requests_running{engine="0",model_name="policy"} 3.0\n'
        'vllm:num_requests_running{engine="1",model_name="policy"} 2.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="policy"} 1.0\n'
        'vllm:num_requests_waiting_by_reason{engine="0"} 7.0\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="policy"} 0.25\n'
        'vllm:kv_cache_usage_perc{engine="1",model_name="policy"} 0.5\n'
    )

    assert (gauges.running, gauges.waiting, gauges.cache_usage) == (5, 1, 0.5)


def test_an_engine_may_tell_nothing_of_its_load():
    assert read_gauges("process_cpu_seconds_total 1.0\n") is None
