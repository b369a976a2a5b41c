"""``bisect`` names what was planted: an engine whose keys and values depend on the weights that computed each token."""

import json
import random

import msgspec
import pytest
from aiohttp import web

from agent_layer.engines import register_policy
from agent_layer.engines.entry import Engine
from agent_layer.gaps.causes import CacheGap, Evidence, Reading, TemplateGap, name_cause
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.schema import PolicyVersion
from agent_layer.schema.record import Advantages, Logprobs, TokenIds
from agent_layer.schema.step import Action, PromptDelta, StepState, Usage
from agent_layer.schema.training import TrainedBatch, TrainedRollout, TrainedTokens
from agent_layer.store import open_store

from ...builders import attempt, call, content
from ...stored import write_segment

BLOCK = 4
BASE, ADAPTER = "policy", "policy-lora"


def weigh(*parts):
    """Return a number from 0 to 1 that follows from all parts."""
    return random.Random(repr(parts)).random()


def judge(keys, weights, token):
    """Return the log-probability of a token, from keys and values of those before and the weights that compute it."""
    return -0.1 - 3 * weigh(tuple(keys), weights, token)


class TinyEngine:
    """vLLM's routes over a made-up model. Weights are (model, version); blocks of a prompt are cached."""

    def __init__(self, version, models=(BASE,), header=()):
        self.url, self.version, self.models, self.header = "", version, list(models), list(header)
        self.cache = {}

    def keys(self, tokens, weights, *, reads_cache):
        """Return what each token left behind: whole blocks come from the cache, under any weights."""
        found = []
        for start in range(0, len(tokens), BLOCK):
            block = tuple(tokens[: start + BLOCK])
            keys = [(token, *weights) for token in tokens[start : start + BLOCK]]
            if reads_cache and len(block) == start + BLOCK:
                keys = self.cache.setdefault((weights[0], block), keys)
            found += keys
        return found

    def sample(self, model, prompt, response):
        """Return log-probabilities of a response as sampling them gives them, with the prefix cache."""
        weights = model, self.version
        keys = self.keys(prompt, weights, reads_cache=True)
        own = [(token, *weights) for token in response]
        return [judge(keys + own[:at], weights, token) for at, token in enumerate(response)]

    def app(self):
        app = web.Application()
        routes = {"/v1/completions": self._complete, "/tokenize": self._render, "/collective_rpc": self._load}
        routes |= {
            "/v1/load_lora_adapter": self._load,
            "/reset_prefix_cache": self._reset,
            "/pause": self._pass,
            "/resume": self._pass,
        }
        app.add_routes([web.get("/v1/models", self._list), *(web.post(*route) for route in routes.items())])
        return app

    async def _list(self, _):
        return web.json_response({"data": [{"id": one, "owned_by": "vllm"} for one in self.models]})

    async def _complete(self, request):
        body = await request.json()
        row, weights = body["prompt"], (body["model"], self.version)
        if "prompt_logprobs" not in body:
            (found,) = self.sample(body["model"], row, [7])
            choice = {"token_ids": [7], "logprobs": {"token_logprobs": [found]}}
            return web.json_response({"choices": [choice]})
        keys = self.keys(row, weights, reads_cache=False)
        scored = [{str(token): {"logprob": judge(keys[:at], weights, token)}} for at, token in enumerate(row)]
        return web.json_response({"choices": [{"prompt_logprobs": [None, *scored[1:]]}]})

    async def _render(self, request):
        if self.header is None:
            raise web.HTTPBadRequest(text="System message must be at the beginning")
        return web.json_response({"tokens": self.header + render((await request.json())["messages"])})

    async def _load(self, request):
        body = await request.json()
        self.version = int((body.get("lora_path") or body["kwargs"]["weights_path"]).rpartition("v")[2])
        return web.json_response({})

    async def _reset(self, _):
        self.cache.clear()
        return web.json_response({})

    async def _pass(self, _):
        return web.json_response({})


def render(messages):
    return [int(word) for message in messages for word in message["content"].split()]


def compute(model, version, prompt, response):
    """Return what a correct computation gives, of trainer or engine."""
    return TinyEngine(version).sample(model, prompt, response)


class Scene:
    """A run with a served engine, whose versions are directories."""

    def __init__(self, settings, registry, tmp_path, seed, *, has_adapters=False):
        self.store, self.registry, self.path = open_store(settings), registry, tmp_path
        self.dice = random.Random(seed)
        self.prompt = [self.dice.randrange(50) for _ in range(self.dice.randrange(BLOCK, 4 * BLOCK))]
        self.response = [self.dice.randrange(50) for _ in range(self.dice.randrange(1, 9))]
        for number in range(4):
            location = tmp_path / f"v{number}"
            location.mkdir()
            (location / ("adapter_config.json" if has_adapters else "model.safetensors")).touch()
            policy = PolicyVersion(run="r", number=number, location=str(location), created_at=1.0)
            register_policy(self.store.redis, self.store.keys, policy, lambda _: None)

    def register(self, engine, model=BASE):
        """Register an engine as one that serves what the registry believes to be version 2."""
        own = {"url": engine.url, "run": "r", "location": "x", "state": "serving", "epoch": 0}
        self.registry.register(Engine(**own, version=2, model=model, logprobs_mode="raw"))

    def record(self, sampled, trained, *, model=BASE, version=2, trained_version=2, cached=None, **given):
        """Store an attempt, first with a step without a gap, and the update that learned from it."""
        tid, words = "t.0-0", content("t.0-0", json.dumps({"content": " ".join(map(str, self.prompt))}).encode())
        own = {"response_token_ids": TokenIds(self.response), "policy_versions": [(version, len(self.response))]}
        sampling = {"model": model, "logprobs_mode": "raw", "temperature": 1.0, "capture_level": "tokens"} | given
        first = compute(model, 2, self.prompt, self.response)
        parts = [
            part
            for at, row in enumerate((first, sampled))
            for part in call(
                tid,
                f"c{at}",
                Action(**own, logprobs=Logprobs(row)),
                at=2.0 + at,
                prompt=PromptDelta(delta=TokenIds(self.prompt)),
                state=StepState(messages=[words.hash]),
                usage=Usage(prompt_tokens=len(self.prompt), response_tokens=len(row), cached_tokens=cached),
                **sampling,
            )
        ]
        own = {"run": "r", "batch_id": "b", "step": 3, "policy_version": trained_version}
        both, size = [*first, *(trained or ())], len(self.response)
        calls = [(f"{tid}/c{at}", 0, size) for at in range(len(both) // size)]
        tokens = TrainedTokens(
            **own,
            trajectory_id=tid,
            at=9.0,
            calls=calls,
            logprobs=Logprobs(both),
            advantages=Advantages([0.5] * len(both)),
            mask=bytes([1] * len(both)),
        )
        named = TrainedRollout(trajectory_id=tid, group_id="g", reward=1.0, reward_ids=[], samples_hash="")
        batch = TrainedBatch(**own, trained_at=9.0, rollouts=[named], num_samples=1, batch_hash="")
        write_segment(self.store, *attempt(tid, words, *parts), tokens, batch)


def plant_stale_weights(scene, engine):
    engine.version = 1
    scene.register(engine)
    sampled = engine.sample(BASE, scene.prompt, scene.response)
    scene.record(sampled, compute(BASE, 2, scene.prompt, scene.response))


def plant_wrong_adapter(scene, engine):
    engine.models = [BASE, ADAPTER]
    scene.register(engine, ADAPTER)
    sampled = engine.sample(BASE, scene.prompt, scene.response)
    scene.record(sampled, compute(ADAPTER, 2, scene.prompt, scene.response), model=ADAPTER)


def plant_kept_cache(scene, engine):
    engine.version = 1
    engine.sample(BASE, scene.prompt, scene.response)
    engine.version = 2
    scene.register(engine)
    sampled = engine.sample(BASE, scene.prompt, scene.response)
    scene.record(sampled, compute(BASE, 2, scene.prompt, scene.response), cached=BLOCK)


def plant_kept_cache_of_the_past(scene, engine):
    plant_kept_cache(scene, engine)
    engine.cache.clear()


def plant_template(scene, engine):
    engine.header = [51]
    scene.register(engine)
    sampled = engine.sample(BASE, scene.prompt, scene.response)
    scene.record(sampled, compute(BASE, 2, [51, *scene.prompt], scene.response))


def plant_trainer_version(scene, engine):
    scene.register(engine)
    sampled = engine.sample(BASE, scene.prompt, scene.response)
    scene.record(sampled, compute(BASE, 3, scene.prompt, scene.response))


def plant_trainer(scene, engine):
    scene.register(engine)
    sampled = engine.sample(BASE, scene.prompt, scene.response)
    scene.record(sampled, [one - 0.5 for one in sampled])


def plant_newer_trainer(scene, engine):
    scene.register(engine)
    sampled = engine.sample(BASE, scene.prompt, scene.response)
    scene.record(sampled, compute(BASE, 3, scene.prompt, scene.response), trained_version=3)


def plant_newer_trainer_that_errs(scene, engine):
    scene.register(engine)
    sampled = engine.sample(BASE, scene.prompt, scene.response)
    trained = [one - 0.5 for one in compute(BASE, 3, scene.prompt, scene.response)]
    scene.record(sampled, trained, trained_version=3)


def plant_no_number(scene, engine):
    scene.register(engine)
    sampled = engine.sample(BASE, scene.prompt, scene.response)
    scene.record(sampled, [float("nan")] * len(sampled))


def plant_rearranged_and_trainer(scene, engine):
    engine.header = [51]
    plant_trainer(scene, engine)


def plant_refused_messages_and_trainer(scene, engine):
    engine.header = None
    plant_trainer(scene, engine)


def plant_rearranged(scene, engine):
    engine.header = [51]
    plant_nothing(scene, engine)


def plant_rearranged_and_untrained(scene, engine):
    engine.header = [51]
    scene.register(engine)
    scene.record(engine.sample(BASE, scene.prompt, scene.response), None)


def plant_nothing(scene, engine):
    scene.register(engine)
    sampled = engine.sample(BASE, scene.prompt, scene.response)
    scene.record(sampled, sampled)


PLANTS = {
    plant_stale_weights: ("stale_weights", "version 1"),
    plant_wrong_adapter: ("wrong_adapter", BASE),
    plant_kept_cache: ("kept_cache", "from its cache"),
    plant_kept_cache_of_the_past: ("unknown", "came from the cache"),
    plant_template: ("template", "renders 51"),
    plant_trainer_version: ("trainer_version", "version 3"),
    plant_trainer: ("trainer", "precision"),
    plant_newer_trainer: ("trainer_version", "version 3"),
    plant_newer_trainer_that_errs: ("trainer", "precision"),
    plant_no_number: ("trainer", "precision"),
    plant_rearranged_and_trainer: ("trainer", "precision"),
    plant_refused_messages_and_trainer: ("trainer", "precision"),
    plant_rearranged: ("none", ""),
    plant_rearranged_and_untrained: ("none", ""),
    plant_nothing: ("none", ""),
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("plant", PLANTS, ids=lambda one: one.__name__.removeprefix("plant_"))
def test_what_was_planted_is_named(settings, registry, tmp_path, agent_layer, plant, seed):
    has_adapters = plant is plant_wrong_adapter
    scene, engine = Scene(settings, registry, tmp_path, seed, has_adapters=has_adapters), TinyEngine(2)
    spare = TinyEngine(0, [BASE, ADAPTER] if has_adapters else [BASE])
    cause, word = PLANTS[plant]
    with serve_in_thread(engine), serve_in_thread(spare):
        plant(scene, engine)
        step = scene.store.get("t.0-0").steps[1]
        tokens = scene.store.step_tokens(scene.store.get("t.0-0"), 1)
        pairs = zip(step.action.logprobs, tokens.trained_logprobs, strict=False)
        first = next((at for at, (one, two) in enumerate(pairs) if not abs(one - two) <= 0.02), None)
        for subject in ("t.0-0", "r:3"):
            options = ("--engine", spare.url, "--versions", "1..3", "--tolerance", "0.02", "--format", "json")
            status, out, err = agent_layer("bisect", subject, *options)
            found = json.loads(out) if out else err
            assert (found["cause"], word in found["sentence"]) == (cause, True), found
            assert (status, found["token"]) == (int(cause != "none"), first)
            assert found["step"] == (None if cause == "none" else 1)


@pytest.fixture
def registry(settings, redis):
    from agent_layer.engines import open_engine_registry  # noqa: PLC0415

    return open_engine_registry(settings, redis)


def test_what_cannot_be_asked_is_refused(settings, registry, tmp_path, agent_layer):
    scene, engine = Scene(settings, registry, tmp_path, 0), TinyEngine(2)
    assert agent_layer("bisect", "t.0-0")[0] == 2
    with serve_in_thread(engine):
        plant_nothing(scene, engine)
        alias = engine.url.replace("127.0.0.1", "localhost")
        for wrong in (
            ["r:4"],
            ["t.0-0", "--engine", engine.url, "--versions", "1..2"],
            ["t.0-0", "--engine", alias, "--versions", "1..2"],
            ["t.0-0", "--versions", "1"],
        ):
            status, _, err = agent_layer("bisect", *wrong)
            assert (status, "Traceback" in err) == (2, False), err
        assert engine.version == 2, "an engine that serves is loaded with nothing"
        status, out, _ = agent_layer("bisect", "t.0-0")
        assert (status, "no token differs" in out) == (0, True)


@pytest.mark.parametrize("sampling", [{"temperature": 0.7}, {"sampling_applied": {"top_p": 0.9}}])
def test_a_gap_that_no_engine_can_replay_is_not_called_none(settings, registry, tmp_path, agent_layer, sampling):
    scene, engine = Scene(settings, registry, tmp_path, 0), TinyEngine(2)
    with serve_in_thread(engine):
        scene.register(engine)
        right = engine.sample(BASE, scene.prompt, scene.response)
        scene.record(right, [one - 1 for one in right], logprobs_mode="processed", **sampling)
        assert agent_layer("bisect", "t.0-0")[0] == 2


VERSION, ROWS = 2, [Logprobs([-1.0, -2.0 - at]) for at in range(4)]


def read(row, version, **own):
    return Reading(engine="http://e", model=BASE, version=version, logprobs=row, **own)


def every_evidence(seed):
    """Yield random evidence, in which any row may be that of any computation."""
    dice = random.Random(seed)
    for _ in range(400):
        readings = [
            read(dice.choice(ROWS), dice.choice([None, 1, 2, 3]), is_loaded=dice.random() < 0.5, rendered=ROWS[3])
            for _ in range(dice.randrange(4))
        ]
        yield Evidence(
            version=dice.choice([None, VERSION]),
            sampled=dice.choice(ROWS),
            trained=dice.choice([None, *ROWS]),
            trained_version=dice.choice([1, 2, 3]),
            readings=readings,
            template=dice.choice([None, TemplateGap("http://e", 0, 1, 2, TokenIds([2]))]),
            cache=dice.choice([None, CacheGap("http://e", -1.0, -2.0)]),
            num_cached=dice.choice([None, 4]),
        )


@pytest.mark.parametrize("seed", range(3))
def test_a_cause_needs_a_gap_and_a_computation_by_the_version_of_the_step(seed):
    for found in every_evidence(seed):
        cause, _, token = name_cause(found, 0.02)
        own = [one.logprobs for one in found.readings if one.version == found.version is not None]
        if found.sampled == found.trained or (found.trained is None and not own):
            assert (cause, token) == ("none", None), found
        elif not own:
            assert cause == "unknown", found
        if cause == "template":
            assert (found.template is None, found.trained) == (False, ROWS[3]), found
        if cause in ("trainer", "trainer_version", "template"):
            assert found.sampled in own, found
        if cause == "kept_cache":
            assert found.cache, found


def test_a_number_that_is_none_is_a_difference():
    row, nan = Logprobs([-1.0, -2.0]), Logprobs([-1.0, float("nan")])
    reading = Reading(engine="http://e", model=BASE, version=1, is_loaded=True, logprobs=row)
    found = Evidence(version=1, sampled=row, trained=nan, trained_version=1, readings=[reading])

    assert name_cause(found, 0.02)[::2] == ("trainer", 1)
    assert name_cause(msgspec.structs.replace(found, trained=row), 0.02).cause == "none"


def test_an_engine_is_no_witness_of_its_own_version():
    row, other = Logprobs([-1.0, -2.0]), Logprobs([-1.0, -3.0])
    reading = Reading(engine="http://e", model=BASE, version=1, logprobs=row)
    found = Evidence(version=1, sampled=row, trained=other, trained_version=1, readings=[reading])

    assert name_cause(found, 0.02)[::2] == ("unknown", 1)
