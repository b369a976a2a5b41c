"""The engine registry remembers what operators want, knows tokenizers by content, and reads older entries."""

import json

import msgspec
import pytest
from redis.client import Pipeline

from agent_layer.engines.fingerprints import Fingerprints, read_fingerprints
from agent_layer.engines.registry import Engine, EngineRegistry
from agent_layer.errors import EngineError, NotFoundError

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


def test_an_engine_that_left_is_gone_for_all(registry):
    registry.register(entry())
    registry.forget(URL)

    assert registry.engines() == []
    with pytest.raises(NotFoundError, match="agent-layer engines"):
        registry.change(URL, is_drained=True)


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
