"""``bisect`` over a real vLLM: stale weights, a base in place of its adapter, a kept cache, another template are named.

torch takes seconds to import, so it is imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import json

import pytest
import requests

from agent_layer.engines import EngineRegistry, register_engine, register_policy
from agent_layer.engines.entry import Engine
from agent_layer.gaps import BisectOptions, bisect_gap
from agent_layer.local.vllm import VllmServer
from agent_layer.recorder import open_recorder
from agent_layer.schema import PolicyVersion
from agent_layer.schema.record import Advantages, Logprobs, TokenIds
from agent_layer.schema.step import Action, PromptDelta, StepState, Usage
from agent_layer.schema.training import TrainedTokens
from agent_layer.store import open_store
from trainer_adapter.config import LoraConfig, TrainConfig

from ..builders import attempt, call, content
from ..stored import write_segment
from ..waiting import scaled
from .test_lora_engine import move_adapter

PROMPT = [3 + at % 15 for at in range(200)]
"""Longer than a block of 128 tokens: shorter ones are never cached."""

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(1800), pytest.mark.long]


def ask(server, path, **body):
    answer = requests.post(f"{server.url}{path}", json=body, timeout=scaled(120))
    answer.raise_for_status()
    return answer.json() if answer.content else {}


def sample(server, prompt, name=None):
    """Return ids and log-probabilities of an answer, and the cached tokens of its prompt."""
    tokens = {"max_tokens": 6, "temperature": 1.0, "logprobs": 0, "return_token_ids": True, "ignore_eos": True}
    answer = ask(server, "/v1/completions", model=name or server.name, prompt=prompt, **tokens)
    (choice,), details = answer["choices"], answer["usage"]["prompt_tokens_details"]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"], (details or {}).get("cached_tokens")


def compute(directory, prompt, answer, weights=None):
    """Return what Hugging Face's model computes for the answer, with other weights if they are given."""
    import torch
    from transformers import AutoModelForCausalLM

    reader = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    reader.load_state_dict(reader.state_dict() if weights is None else weights)
    with torch.no_grad():
        logits = reader(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None])[:, 0].tolist()


def record(store, rollout, prompt, answer, sampled, trained, *, cached=None, text=None, model="policy", version=1):
    """Store a step that names a version, and what a trainer with that version computed for it."""
    tid = f"{rollout}-0"
    words = [content(tid, json.dumps({"role": "user", "content": text}).encode())] if text else []
    action = Action(
        response_token_ids=TokenIds(answer), logprobs=Logprobs(sampled), policy_versions=[(version, len(answer))]
    )
    usage = Usage(prompt_tokens=len(prompt), response_tokens=len(answer), cached_tokens=cached)
    shown = {"prompt": PromptDelta(delta=TokenIds(prompt)), "state": StepState(messages=[one.hash for one in words])}
    known = {"model": model, "temperature": 1.0, "logprobs_mode": "processed", "capture_level": "tokens"}
    trained = TrainedTokens(
        trajectory_id=tid,
        run="r",
        batch_id="b",
        step=1,
        policy_version=version,
        at=9.0,
        calls=[(f"{tid}/a", 0, len(answer))],
        logprobs=Logprobs(trained),
        advantages=Advantages([1.0] * len(answer)),
        mask=bytes([1] * len(answer)),
    )
    write_segment(store, *attempt(tid, *words, *call(tid, "a", action, usage=usage, **shown, **known)), trained)
    return tid


@pytest.fixture(scope="module")
def versions(model, tmp_path_factory):
    from trainer_adapter.demo.model import write_model

    write_model(newer := tmp_path_factory.mktemp("version"), seed=1)
    return [model, newer]


@pytest.fixture(scope="module")
def server(versions, tmp_path_factory):
    log = tmp_path_factory.mktemp("vllm") / "vllm.log"
    with VllmServer(model=versions[0], log=log, max_model_len=256, start_seconds=scaled(300)) as server:
        yield server


@pytest.fixture
def store(settings, redis, keys, server, versions):
    """A store that knows both versions; the server has version 0, and nothing cached."""
    for number, place in enumerate(versions):
        policy = PolicyVersion(run="r", number=number, location=str(place), created_at=1.0)
        register_policy(redis, keys, policy, lambda _: None)
    server.control.load(versions[0])
    return open_store(settings)


def test_stale_weights_are_named(settings, store, server, versions):
    answer, sampled, _ = sample(server, PROMPT)
    stale = record(store, "stale", PROMPT, answer, sampled, compute(versions[1], PROMPT, answer))

    found = bisect_gap(settings, store, stale, BisectOptions(engines=[server.url], versions=[0, 1], tolerance=0.02))

    assert (found.cause, f"{server.url} with version 0" in found.sentence) == ("stale_weights", True), found
    assert abs(found.sampled - found.trained) > 0.02


def test_a_cache_kept_over_a_switch_is_named(settings, store, redis, keys, server, versions):
    sample(server, PROMPT)
    ask(server, "/collective_rpc", method="reload_weights", kwargs={"weights_path": str(versions[1])})  # and no reset
    answer, sampled, cached = sample(server, PROMPT)
    kept = record(store, "kept", PROMPT, answer, sampled, compute(versions[1], PROMPT, answer), cached=cached)
    own = {"url": server.url, "run": "r", "version": 1, "location": "x", "model": "policy", "epoch": 0}
    EngineRegistry(redis, keys).register(Engine(**own, logprobs_mode="processed", state="serving"))

    found = bisect_gap(settings, store, kept, BisectOptions(tolerance=0.02))

    assert cached == 128
    assert (found.cause, "from its cache" in found.sentence) == ("kept_cache", True), found


def test_nothing_is_named_where_all_is_right_and_another_template_where_a_prompt_differs(
    settings, store, server, versions
):
    server.control.load(versions[1])
    question = {"messages": [{"role": "user", "content": "higher"}], "max_tokens": 6, "ignore_eos": True}
    options = {"temperature": 1.0, "logprobs": True, "return_token_ids": True}
    chat = ask(server, "/v1/chat/completions", model="policy", **question, **options)
    prompt, (choice,) = chat["prompt_token_ids"], chat["choices"]
    answer, sampled = choice["token_ids"], [one["logprob"] for one in choice["logprobs"]["content"]]
    right, both = (
        compute(versions[1], prompt, answer),
        BisectOptions(engines=[server.url], versions=[0, 1], tolerance=0.02),
    )
    clean = record(store, "clean", prompt, answer, sampled, right, text="higher")
    rendered = ask(server, "/tokenize", messages=[{"role": "user", "content": "lower"}], add_generation_prompt=True)
    wrong = compute(versions[1], rendered["tokens"], answer)
    other = record(store, "other", prompt, answer, sampled, wrong, text="lower")

    assert bisect_gap(settings, store, clean, both).cause == "none"
    found = bisect_gap(settings, store, other, both)
    assert (found.cause, "prompt token" in found.sentence) == ("template", True), found


def test_a_base_that_answers_in_place_of_its_adapter_is_named(settings, redis, keys, model, tmp_path):
    """A registered engine lists both; a spare one proves it with the adapters of both versions."""
    from trainer_adapter.verl import EmbeddedTrainer, WeightPublisher

    settings = settings.model_copy(update={"run": "r"})
    lora = LoraConfig(rank=4, alpha=8, publish="adapter")
    trainer = EmbeddedTrainer(TrainConfig(model=model, tasks=[], steps=1, lora=lora))
    publisher = WeightPublisher(settings, "r", redis, open_recorder(settings))
    publisher.register_base(model)
    log, limits = tmp_path / "vllm.log", {"max_model_len": 256, "start_seconds": scaled(300)}
    with VllmServer(model=model, log=log, lora_rank=4, **limits) as server:
        register_engine(settings, redis, server.url, location=str(model), logprobs_mode="processed")
        for seed in (2, 1):
            move_adapter(trainer, seed)
            number = publisher.publish(trainer.published_weights(), model, 1)
        publisher.serve(number, is_required=True)
        registry, store = EngineRegistry(redis, keys), open_store(settings)
        adapter = registry.read(server.url).model
        tids = []
        for name in (server.name, adapter):
            answer, sampled, _ = sample(server, PROMPT, name)
            trained = compute(model, PROMPT, answer, dict(trainer.weights()))
            shown = {"model": adapter, "version": number}
            tids.append(record(store, name, PROMPT, answer, sampled, trained, **shown))
        by_registered = [bisect_gap(settings, store, tid, BisectOptions(tolerance=0.02)) for tid in tids]
        registry.forget(server.url)
        spare = BisectOptions(engines=[server.url], versions=[1, number], tolerance=0.02)
        by_versions = [bisect_gap(settings, store, tid, spare) for tid in tids]

    for wrong, right in (by_registered, by_versions):
        assert (wrong.cause, f"by another model: {server.name} at" in wrong.sentence) == ("wrong_adapter", True), wrong
        assert right.cause == "none", right
