"""The engine registry remembers what operators want, knows tokenizers by content, and reads older entries."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec
import pytest
from redis.client import Pipeline

from agent_layer.engines.fingerprints import Fingerprints, read_fingerprints
from agent_layer.engines.owners import PushedVersion, hold_engines, release_engines
from agent_layer.engines.registry import Engine, EngineRegistry
from agent_layer.errors import EngineError, NotFoundError

from ...waiting import wait_until

URL = "http://127.0.0.1:1"


def entry(**fields):
    about = {"run": "r", "version": 3, "location": "w", "model": "m", "logprobs_mode": "raw", "state": "serving"}
    return Engine(url=URL, epoch=0, **{**about, **fields})


@pytest.fixture
def registry(redis, keys):
    return EngineRegistry(redis, keys)


def test_what_is_registered_is_read_again(registry):
    registry.register(entry(tokenizer_hash="t", is_joined=True))

    found = registry.read(URL)
    assert (found.version, found.tokenizer_hash, found.template_hash) == (3, "t", None)
    assert (found.is_joined, found.is_drained) == (True, False)


def test_an_entry_without_the_newer_fields_can_be_read(registry, redis, keys):
    old = {"run": "r", "version": 1, "location": "w", "model": "m", "logprobs_mode": "raw", "state": "serving"}
    redis.hset(keys.engine(URL), mapping={**old, "epoch": 4, "idle:gateway": 4})
    redis.sadd(keys.engines, URL)

    (found,) = registry.engines()
    assert (found.epoch, found.tokenizer_hash, found.is_drained) == (4, None, False)


def test_a_drained_engine_stays_drained_through_a_switch(registry):
    registry.register(entry())
    registry.change(URL, is_drained=True)
    registry.switch(URL, 4, "w4", lambda: None)

    found = registry.read(URL)
    assert (found.version, found.state, found.is_drained) == (4, "serving", True)


def test_an_engine_that_was_held_comes_back_with_its_stall_measured(registry):
    registry.register(entry())
    hold = registry.hold([URL])
    assert registry.read(URL).state == "loading"
    hold.release(4, "w4", models={URL: "other"})

    found = registry.read(URL)
    assert (found.version, found.location, found.model, found.state) == (4, "w4", "other", "serving")
    assert (found.num_switches, found.held_since) == (1, None)
    assert found.stall_seconds > 0


@pytest.fixture
def meanwhile(monkeypatch):
    """``meanwhile(act)``: act once, when an engine's entry is read and not yet changed."""
    multi, waiting = Pipeline.multi, []

    def begin(changes):
        if waiting:
            waiting.pop()()
        multi(changes)

    monkeypatch.setattr(Pipeline, "multi", begin)
    return waiting.append


@pytest.mark.parametrize(
    ("change", "is_made"),
    [
        (lambda registry: registry.change(URL, is_joined=True), lambda found: found.is_joined),
        (lambda registry: registry.hold([URL]), lambda found: found.state == "loading"),
        (lambda registry: registry.switch(URL, 4, "w4", lambda: None), lambda found: found.version == 4),
    ],
    ids=["change", "hold", "switch"],
)
def test_a_change_that_a_gateways_report_overtakes_is_made_all_the_same(registry, meanwhile, change, is_made):
    registry.register(entry())
    reported = []
    meanwhile(lambda: reported.append(registry.mark_idle(URL, "g", 1)))
    change(registry)

    assert len(reported) == 1
    assert is_made(registry.read(URL))


def test_a_hold_of_an_engine_that_leaves_meanwhile_holds_none(registry, redis, keys, meanwhile):
    other = "http://127.0.0.1:2"
    registry.register(entry())
    registry.register(msgspec.structs.replace(entry(), url=other))
    meanwhile(lambda: registry.forget(other))
    with pytest.raises(EngineError, match=f"{other}: expected it to be registered, but it left meanwhile"):
        registry.hold([URL, other])

    assert [(engine.url, engine.state) for engine in registry.engines()] == [(URL, "serving")]
    assert not redis.exists(keys.engine(other))


@pytest.mark.parametrize(
    "wait",
    [
        lambda registry: registry.hold([URL], 90.0),
        lambda registry: registry.wait_drained(URL, registry.change(URL, is_drained=True), 90.0),
    ],
    ids=["hold", "drain"],
)
def test_no_one_waits_for_the_calls_of_an_engine_that_left(redis, keys, registry, wait):
    registry.register(entry())
    registry.renew_gateway("g")  # it reports nothing
    began = registry.last_event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, EngineRegistry(redis, keys, gateway_seconds=1000.0))
        wait_until(lambda: registry.last_event() != began)
        EngineRegistry(redis, keys).forget(URL)
        wait_until(waiting.done)

    with pytest.raises(EngineError, match="it left meanwhile"):
        waiting.result()
    assert registry.engines() == []


def test_an_engine_that_left_is_gone_for_all(registry):
    registry.register(entry())
    registry.forget(URL)

    assert registry.engines() == []
    with pytest.raises(NotFoundError, match="agent-layer engines"):
        registry.change(URL, is_drained=True)


def test_several_engines_are_held_and_released_at_one_moment(redis, keys, registry):
    """Else those that serve a moment longer, or sooner, would get the calls of all, and keep them."""
    urls, pushes = [f"http://127.0.0.1:{port}" for port in range(1, 9)], range(4, 24)
    for url in urls:
        registry.register(msgspec.structs.replace(entry(), url=url))
    reader, seen = EngineRegistry(redis, keys), set()
    with ThreadPoolExecutor(1) as pool:
        pushing = pool.submit(lambda: [registry.hold(urls).release(version, "w") for version in pushes])
        while not pushing.done():
            seen.add(tuple({(engine.state, engine.version) for engine in reader.engines()}))

    assert len(pushing.result()) == len(pushes)
    assert {len(states) for states in seen} == {1}, seen


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_during_a_hold_no_engine_stays_out_of_service(redis, keys, registry, monkeypatch, seed):
    rng, urls = random.Random(seed), [f"http://127.0.0.1:{port}" for port in (1, 2, 3)]
    other, multi, is_calm = EngineRegistry(redis, keys), Pipeline.multi, [True]

    def interfere(changes):
        if not is_calm and rng.random() < 0.3:
            is_calm.append(True)  # what interferes is not interfered with
            url = rng.choice(urls)
            rng.choice(
                [
                    lambda: other.register(msgspec.structs.replace(entry(), url=url)),
                    lambda: other.forget(url),
                    lambda: other.renew_gateway("g"),
                    lambda: other.remove_gateway("g"),
                    lambda: other.change(url, is_joined=True) if other.read(url) else None,
                ]
            )()
            is_calm.clear()
        multi(changes)

    monkeypatch.setattr(Pipeline, "multi", interfere)
    for url in urls:
        registry.register(msgspec.structs.replace(entry(), url=url))
    is_calm.clear()
    with suppress(EngineError):
        registry.hold(urls, 0.01).release(4, "w4")
    is_calm.append(True)

    assert {engine.state for engine in registry.engines()} <= {"serving"}
    registry.remove_gateway("g")
    if left := [engine.url for engine in registry.engines()]:
        registry.hold(left).release(5, "w5")
    assert {(engine.state, engine.version) for engine in registry.engines()} <= {("serving", 5)}


@pytest.mark.parametrize("pushed", [None, PushedVersion(number=4, location="w4")], ids=["cancel", "release"])
def test_an_engine_that_is_registered_again_during_a_hold_keeps_no_other_out(settings, redis, registry, pushed):
    others = ["http://127.0.0.1:2", "http://127.0.0.1:3"]
    for url in (URL, *others):
        registry.register(msgspec.structs.replace(entry(), url=url))
    hold_engines(settings, redis, [URL, *others], 0.0)
    registry.register(entry())

    with pytest.raises(EngineError, match=f"{URL}: expected its calls to be held"):
        release_engines(settings, redis, [URL, *others], pushed)
    assert {engine.state for engine in registry.engines()} == {"serving"}


def test_a_registration_that_was_cut_off_is_none(registry, redis, keys):
    redis.hset(keys.engine(URL), "epoch", 7)  # all that an earlier version had written when it was killed
    found = registry.register_unknown(entry())

    assert registry.read(URL) == found
    assert found.epoch > 7
    assert registry.register_unknown(entry(version=9)) == found


def test_what_gateways_reported_ends_with_what_they_reported_on(registry, redis, keys):
    registry.register(entry())
    registry.mark_idle(URL, "ended", 1)
    registry.mark_quiet(URL, "ended", 1)
    registry.hold([URL], 0.0).cancel()
    registry.change(URL, is_drained=True)
    assert not [name for name in redis.hkeys(keys.engine(URL)) if b"ended" in name]

    registry.mark_quiet(URL, "ends", 1)
    registry.remove_gateway("ends")
    registry.forget(URL)
    registry.mark_idle(URL, "late", 1)
    assert not redis.exists(keys.engine(URL))


def model_in(directory, template="{{ messages }}", vocabulary="a b"):
    directory.mkdir()
    (directory / "tokenizer.json").write_text(vocabulary)
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "b"}))
    return str(directory)


def test_the_same_tokenizer_elsewhere_has_the_same_hashes(tmp_path):
    one, other = read_fingerprints(model_in(tmp_path / "1")), read_fingerprints(model_in(tmp_path / "2"))

    assert one == other
    assert None not in (one.tokenizer_hash, one.template_hash)


def test_template_and_tokenizer_are_told_apart(tmp_path):
    base = read_fingerprints(model_in(tmp_path / "1"))
    template = read_fingerprints(model_in(tmp_path / "2", template="{{ other }}"))
    vocabulary = read_fingerprints(model_in(tmp_path / "3", vocabulary="a c"))

    assert (template.tokenizer_hash, vocabulary.template_hash) == (base.tokenizer_hash, base.template_hash)
    assert template.template_hash != base.template_hash
    assert vocabulary.tokenizer_hash != base.tokenizer_hash


def test_a_template_file_goes_before_the_one_in_the_configuration(tmp_path):
    directory = model_in(tmp_path / "1")
    before = read_fingerprints(directory)
    (tmp_path / "1" / "chat_template.jinja").write_text("{{ file }}")

    assert read_fingerprints(directory).template_hash != before.template_hash


def test_a_name_of_a_hub_is_not_known():
    assert read_fingerprints("nobody/nothing") == Fingerprints()
