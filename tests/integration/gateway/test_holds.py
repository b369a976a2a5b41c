"""An owner that pushes weights into its engines itself holds their calls meanwhile; each token knows its version."""

import asyncio
import json
import zlib
from functools import partial
from pathlib import Path

import pytest

from agent_layer.engines.policies import register_policy
from agent_layer.errors import EngineError
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.script import END, word_token_id
from agent_layer.local.scripted.serving import serve
from agent_layer.schema.step import StepPart
from agent_layer.schema.training import PolicyVersion

from ...waiting import scaled, wait_until, within

OPERATOR = "operator-key"
NUM_WORDS = 6
MAX_SECONDS = 600
"""A request may wait for no longer; it ends as soon as it may."""
NUM_SWITCHES = {"wait": 20, "abort": 50}


def choose_word(version, question, index):
    """The word that a frozen copy of these weights says."""
    return f"w{zlib.crc32(f'{version} {question} {index}'.encode())}"


def tell(prompt):
    """Each word, when it is drawn, follows from the question and the weights that are loaded."""
    question = prompt.messages[-1]["content"]
    return (choose_word(Path(prompt.weights()).name, question, index) for index in range(NUM_WORDS))


def frozen_answer(versions, question):
    """Token ids of an answer whose tokens were sampled by these versions, one for each."""
    words = [choose_word(version, question, index) for index, version in enumerate(versions[:NUM_WORDS])]
    return [word_token_id(word) for word in [*words, END]]


@pytest.fixture(params=["wait", "abort"])
def mode(request):
    return request.param


@pytest.fixture
async def gateway(settings, run_gateway, engine, mode):
    engine.script, engine.weights, engine.token_seconds = tell, "0", 0.002
    own = {"api_key": OPERATOR, "gateway_seconds": 1.0, "close_seconds": 0.2, "switch_mode": mode}
    own["logprobs_mode"] = "processed"  # as the fixture registers its engine, or no answer could continue elsewhere
    async with run_gateway(settings.model_copy(update=own)) as kept:
        yield kept


@pytest.fixture
async def pushed(gateway):
    """An engine that joined with an owner."""
    async with serve(ScriptedEngine(script=tell, weights="unknown", token_seconds=0.002)) as engine:
        status, joined = await gateway.post("/engines", {"url": engine.url, "is_pushed": True})
        assert (status, joined["state"], joined["is_pushed"]) == (200, "loading", True), joined
        engine.calls.clear()
        yield engine


def push(gateway, engines, version, missed=()):
    """What an owner does; return the seconds for which calls were held."""
    hold = gateway.registry.hold([engine.url for engine in engines], scaled(30.0))
    wait_until(lambda: not any(engine.num_running for engine in engines))  # a call that was cut ends a moment later
    for engine in engines:
        if engine.url not in missed:
            engine.weights = str(version)
    return hold.release(version, f"owner:{version}", missed=missed)


async def serve_both(gateway):
    """Whether the gateway has read that both engines serve."""
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    async with gateway.session.get(f"{gateway.url}/engines", headers=headers) as reply:
        return [one["state"] for one in await reply.json()] == ["serving", "serving"]


async def test_fifty_pushes_under_load(gateway, pushed, until, mode):
    """Each answer's tokens are those that a frozen copy of the version which it claims gives."""
    engines, is_over = [gateway.engine, pushed], asyncio.Event()
    pushed.calls = gateway.engine.calls  # so that each can continue the other's answers
    await asyncio.to_thread(push, gateway, [pushed], 0)
    await until(lambda: serve_both(gateway))  # so that new rollouts take turns
    rollouts = [await gateway.open() for _ in range(6)]
    questions = []

    async def talk(number, opened):
        turn = 0
        while not is_over.is_set():
            question = f"q{number}x{turn}"
            fields = {"stream": bool((number + turn) % 2), "max_tokens": 100}
            assert (await gateway.chat(opened, question, **fields))[0] == 200
            questions.append(question)
            turn += 1

    talking = [asyncio.create_task(talk(number, opened)) for number, opened in enumerate(rollouts)]
    for version in range(1, NUM_SWITCHES[mode] + 1):
        stall = await asyncio.to_thread(push, gateway, engines, version)
        assert stall > 0
        after = len(questions)
        await until(
            lambda after=after: len(questions) > after + len(rollouts)
        )  # one of them asked twice since the push
    is_over.set()
    await asyncio.gather(*talking)

    trajectories = [gateway.log.trajectory(opened["trajectory_id"]) for opened in rollouts]
    answered = [read_answer(trajectory, step) for trajectory in trajectories for step in trajectory.steps]
    assert [tokens for _, versions, tokens in answered] == [
        frozen_answer(versions, question) for question, versions, _ in answered
    ]
    assert sorted(question for question, _, _ in answered) == sorted(questions)
    seen = {version for _, versions, _ in answered for version in versions}
    assert seen >= set(range(1, NUM_SWITCHES[mode] + 1))
    assert {step.engine for one in trajectories for step in one.steps} == {engine.url for engine in engines}


def read_answer(trajectory, step):
    """Return (question, version that sampled each token, token ids)."""
    question = json.loads(trajectory.contents[step.state.messages[-1]])["content"]
    versions = [version for version, number in step.action.policy_versions for _ in range(number)]
    assert len(versions) == NUM_WORDS + 1
    return question, versions, list(step.action.response_token_ids)


@pytest.mark.parametrize("mode", ["wait"])
async def test_a_hold_begins_when_no_call_is_in_flight(gateway, hold, until):
    go_on, url = hold(gateway.engine), gateway.engine.url
    calling = asyncio.create_task(gateway.chat(await gateway.open(), "hello"))
    await until(lambda: gateway.engine.num_running)

    holding = asyncio.create_task(asyncio.to_thread(gateway.registry.hold, [url], scaled(60.0)))
    await until(lambda: gateway.registry.read(url).state == "draining")
    assert not holding.done()
    go_on.set()

    held = await holding
    assert gateway.engine.num_running == 0
    held.cancel()
    assert (await calling)[0] == 200


@pytest.mark.parametrize("mode", ["wait"])
async def test_an_engine_with_an_owner_gets_no_calls_before_its_first_release(gateway, pushed):
    for _ in range(4):
        await gateway.chat(await gateway.open(), "hello")
    assert pushed.calls == []

    await asyncio.to_thread(push, gateway, [pushed], 3)
    async with within(60, "a call at the engine whose weights were pushed"):
        while not pushed.calls:
            await gateway.chat(await gateway.open(), "hello")


@pytest.mark.parametrize("mode", ["wait"])
async def test_an_engine_that_missed_a_version_gets_no_calls_until_it_has_one(gateway, pushed):
    await asyncio.to_thread(push, gateway, [gateway.engine, pushed], 1, [pushed.url])
    for _ in range(4):
        await gateway.chat(await gateway.open(), "hello")
    assert pushed.calls == []
    assert gateway.registry.read(pushed.url).state == "loading"

    await asyncio.to_thread(push, gateway, [gateway.engine, pushed], 2)
    assert (gateway.registry.read(pushed.url).state, gateway.registry.read(pushed.url).version) == ("serving", 2)


@pytest.mark.parametrize("mode", ["wait"])
async def test_a_cancelled_hold_leaves_the_version_and_lets_waiting_calls_go_on(gateway, pushed):
    await asyncio.to_thread(push, gateway, [pushed], 1)
    hold = await asyncio.to_thread(gateway.registry.hold, [gateway.engine.url, pushed.url], scaled(30.0))
    opened = await gateway.open()
    calling = asyncio.create_task(gateway.chat(opened, "hello"))
    await asyncio.to_thread(hold.cancel)

    assert (await calling)[0] == 200
    found = {engine.url: engine for engine in gateway.registry.engines()}
    assert [(found[url].state, found[url].version) for url in (gateway.engine.url, pushed.url)] == [
        ("serving", 0),
        ("serving", 1),
    ]
    assert found[pushed.url].num_switches == 1


@pytest.mark.parametrize("mode", ["wait"])
async def test_calls_that_do_not_end_in_time_leave_all_engines_in_service(gateway, pushed, until):
    await asyncio.to_thread(push, gateway, [pushed], 1)
    gateway.engine.token_seconds = pushed.token_seconds = 60
    calling = asyncio.create_task(gateway.chat(await gateway.open(), "hello"))
    await until(lambda: gateway.engine.num_running + pushed.num_running)

    with pytest.raises(EngineError, match="in flight"):
        await asyncio.to_thread(gateway.registry.hold, [gateway.engine.url, pushed.url], 0.1)

    assert [engine.state for engine in gateway.registry.engines()] == ["serving", "serving"]
    calling.cancel()


@pytest.mark.parametrize("mode", ["wait"])
async def test_a_hold_of_a_dead_owner_is_taken_over_and_its_time_counts(gateway, pushed):
    await asyncio.to_thread(push, gateway, [pushed], 1)
    dead = await asyncio.to_thread(gateway.registry.hold, [pushed.url], scaled(30.0))
    began = gateway.registry.read(pushed.url).held_since

    await asyncio.to_thread(push, gateway, [pushed], 2)
    with pytest.raises(EngineError, match="another driver"):
        dead.release(1, "late")

    found = gateway.registry.read(pushed.url)
    assert (found.version, found.state, found.held_since) == (2, "serving", None)
    assert began is not None
    assert found.stalled_seconds >= found.stall_seconds > 0


@pytest.mark.parametrize("mode", ["wait"])
async def test_a_new_engine_loads_the_newest_version_before_it_gets_calls(gateway, redis, keys, settings, tmp_path):
    directory = tmp_path / "7"
    directory.mkdir()
    policy = PolicyVersion(run=settings.run, number=7, location=str(directory), created_at=0.0)
    register_policy(redis, keys, policy, gateway.log.append)

    async with serve(ScriptedEngine(script=tell)) as engine:
        status, joined = await gateway.post("/engines", {"url": engine.url})
        assert (status, joined["version"], joined["location"]) == (200, 7, str(directory)), joined
        assert engine.weights == str(directory)
        await gateway.post("/engines", {"url": engine.url})
        assert engine.num_loads == 1


@pytest.mark.parametrize("mode", ["wait"])
async def test_a_new_engine_that_refuses_the_newest_version_does_not_join(gateway, redis, keys, settings, tmp_path):
    policy = PolicyVersion(run=settings.run, number=7, location=str(tmp_path), created_at=0.0)
    register_policy(redis, keys, policy, gateway.log.append)

    async with serve(ScriptedEngine(script=tell)) as engine:
        engine.refuses_weights = True
        status, answer = await gateway.post("/engines", {"url": engine.url})

    assert status == 502
    assert "VLLM_SERVER_DEV_MODE" in answer["error"]["message"]
    assert gateway.registry.read(engine.url) is None


@pytest.mark.parametrize("mode", ["wait"])
async def test_a_drain_waits_for_calls_in_flight(gateway, hold, until):
    go_on = hold(gateway.engine)
    calling = asyncio.create_task(gateway.chat(await gateway.open(), "hello"))
    await until(lambda: gateway.engine.num_running)
    drain = partial(gateway.post, "/engines/drain")

    status, answer = await drain({"url": gateway.engine.url, "seconds": 0.2})
    assert status == 502
    assert "expected its calls to end" in answer["error"]["message"]
    draining = asyncio.create_task(drain({"url": gateway.engine.url, "seconds": MAX_SECONDS}))
    await until(lambda: gateway.registry.read(gateway.engine.url).is_drained)
    assert not draining.done()
    go_on.set()

    assert (await calling)[0] == 200
    assert (await draining)[0] == 200


@pytest.mark.parametrize("mode", ["wait"])
async def test_an_engine_leaves_by_delete_and_joins_again(gateway, pushed):
    await asyncio.to_thread(push, gateway, [pushed], 1)
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    async with gateway.session.delete(f"{gateway.url}/engines?url={pushed.url}/v1", headers=headers) as reply:
        assert reply.status == 200
    assert gateway.registry.read(pushed.url) is None

    await gateway.post("/engines", {"url": pushed.url, "is_pushed": True})
    await asyncio.to_thread(push, gateway, [pushed], 2)
    assert gateway.registry.read(pushed.url).version == 2


@pytest.mark.parametrize("mode", ["wait"])
async def test_an_owner_without_a_shell_holds_and_releases_over_http(gateway, pushed):
    urls = [f"{gateway.engine.url}/v1", pushed.url]
    status, shown = await gateway.post("/engines/hold", {"urls": urls, "seconds": MAX_SECONDS})
    assert (status, {one["url"]: one["state"] for one in shown}) == (
        200,
        {gateway.engine.url: "loading", pushed.url: "loading"},
    )
    calling = asyncio.create_task(gateway.chat(await gateway.open(), "hello"))
    for engine in (gateway.engine, pushed):
        engine.weights = "3"

    status, shown = await gateway.post("/engines/release", {"urls": urls, "version": 3, "location": "owner:3"})

    assert status == 200
    assert {(one["url"], one["state"], one["version"]) for one in shown} == {
        (gateway.engine.url, "serving", 3),
        (pushed.url, "serving", 3),
    }
    assert (await calling)[0] == 200
    (part,) = [part for part in gateway.log.of(StepPart) if part.actions]
    assert [version for version, _ in part.actions[0].policy_versions] == [3]


@pytest.mark.parametrize("mode", ["wait"])
async def test_a_hold_over_http_in_which_nothing_was_pushed_is_cancelled(gateway, pushed):
    urls = [gateway.engine.url, pushed.url]
    assert (await gateway.post("/engines/hold", {"urls": urls}))[0] == 200

    status, answer = await gateway.post("/engines/release", {"urls": urls, "cancel": True})

    assert (status, "it never served" in answer["error"]["message"]) == (502, True), (
        "the one that joined has no version"
    )
    assert [gateway.registry.read(url).state for url in urls] == ["serving", "loading"]
    assert (await gateway.chat(await gateway.open(), "hello"))[0] == 200


@pytest.mark.parametrize("mode", ["wait"])
async def test_calls_that_do_not_end_in_time_are_told_over_http(gateway, hold, until):
    go_on = hold(gateway.engine)
    calling = asyncio.create_task(gateway.chat(await gateway.open(), "hello"))
    await until(lambda: gateway.engine.num_running)

    status, answer = await gateway.post("/engines/hold", {"urls": [gateway.engine.url], "seconds": 0.1})

    assert (status, "in flight" in answer["error"]["message"]) == (502, True)
    assert gateway.registry.read(gateway.engine.url).state == "serving"
    go_on.set()
    assert (await calling)[0] == 200


@pytest.mark.parametrize("mode", ["wait"])
@pytest.mark.parametrize(
    ("path", "body", "found"),
    [
        ("hold", {"urls": []}, "the address of at least one"),
        ("hold", {"urls": ["http://127.0.0.1:1"], "seconds": -1}, "expected 0 to"),
        ("hold", {"urls": ["http://127.0.0.1:1"]}, "not registered"),
        ("release", {"urls": ["http://127.0.0.1:1"]}, "either version and location, or cancel"),
        ("release", {"urls": ["http://127.0.0.1:1"], "version": 3}, "either version and location, or cancel"),
        ("release", {"urls": ["http://127.0.0.1:1"], "cancel": True}, "expected its calls to be held"),
    ],
)
async def test_a_hold_or_release_that_cannot_be_is_refused_with_the_reason(gateway, path, body, found):
    status, answer = await gateway.post(f"/engines/{path}", body)

    assert status in (400, 502)
    assert found in answer["error"]["message"]


@pytest.mark.parametrize("mode", ["wait"])
@pytest.mark.parametrize("path", ["hold", "release"])
async def test_only_operators_hold_and_release(gateway, path):
    body = {"urls": [gateway.engine.url], "cancel": True} if path == "release" else {"urls": [gateway.engine.url]}
    opened = await gateway.open()

    for key in ("", "wrong", opened["api_key"]):
        assert (await gateway.post(f"/engines/{path}", body, key=key))[0] == 401

    assert gateway.registry.read(gateway.engine.url).state == "serving"
