"""Keys, addresses and budgets: who may call, and for how long."""

import pytest

from agent_layer.engines.policies import list_policies
from agent_layer.schema.rollout import AttemptStarted


async def test_opening_answers_where_and_with_which_key(gateway):
    opened = await gateway.open(rollout_id="r1", attempt=2, run="mine", task_type="math", labels={"a": "b"})

    assert opened["trajectory_id"] == "r1-2"
    assert opened["base_url"] == f"{gateway.url}/r/r1-2/v1"
    assert opened["model"] == "scripted"
    started = gateway.log.of(AttemptStarted)[0]
    assert (started.run, started.task_type, started.labels) == ("mine", "math", {"a": "b"})


async def test_opening_twice_is_opening_once(gateway):
    first, second = [await gateway.open(rollout_id="r1") for _ in range(2)]

    assert first == second
    assert len(gateway.log.of(AttemptStarted)) == 1


async def test_a_worker_writes_the_beginning_itself(gateway):
    await gateway.open(owner="worker")

    assert gateway.log.of(AttemptStarted) == []


@pytest.mark.parametrize("key", ["", "wrong", "rk-wrong"])
async def test_without_the_key_nothing_is_done(gateway, key):
    opened = await gateway.open()

    assert (await gateway.post("/rollouts", {"task_id": "t"}, key=key))[0] == 401
    assert (await gateway.chat(opened | {"api_key": key}, "hello"))[0] == 401
    assert (await gateway.chat(opened | {"base_url": f"{gateway.url}/r/unknown-0/v1"}, "hello"))[0] == 401
    assert gateway.engine.calls == []


async def test_a_rollouts_key_opens_no_other_rollout(gateway):
    one, other = await gateway.open(), await gateway.open()

    assert (await gateway.chat(other | {"api_key": one["api_key"]}, "hello"))[0] == 401
    assert (await gateway.post("/rollouts", {"task_id": "t"}, key=one["api_key"]))[0] == 401


async def test_keys_are_never_recorded(gateway):
    opened = await gateway.open()
    await gateway.chat(opened, "hello")

    recorded = repr(gateway.log.records)
    assert opened["api_key"] not in recorded
    assert "operator-key" not in recorded


async def test_the_operator_may_name_the_rollout_in_a_header(gateway):
    opened = await gateway.open()
    plain = {"base_url": f"{gateway.url}/v1", "api_key": "operator-key"}

    named, unnamed = (
        await gateway.chat(plain, "hi", headers={"x-agent-layer-rollout": opened["trajectory_id"]}),
        await gateway.chat(plain, "hi"),
    )

    assert (named[0], unnamed[0]) == (200, 400)
    assert "x-agent-layer-rollout" in unnamed[1]["error"]["message"]
    assert gateway.step(opened).status == "ok"


@pytest.mark.parametrize(("limits", "num_calls"), [({"turns": 2}, 2), ({"tokens": 5}, 2)])
async def test_a_used_up_budget_is_said_so_that_no_sdk_tries_again(gateway, limits, num_calls):
    opened = await gateway.open(limits=limits)

    answers = [await gateway.chat(opened, "hello") for _ in range(3)]  # an echo of "hello" has 4 tokens

    assert [status for status, _ in answers] == [200, 200, 429]
    assert answers[2][1]["error"]["code"] == "rollout_limit"
    assert len(gateway.engine.calls) == num_calls


@pytest.mark.parametrize(("sent", "status"), [(True, 200), (1, 200), (0.5, 200), (None, 200), ("1", 400), ([1], 400)])
@pytest.mark.parametrize("field", ["score", "reward"])
async def test_a_reward_is_a_number_of_any_type_that_json_has(gateway, field, sent, status):
    opened = await gateway.open()

    answered, answer = await gateway.post(f"/r/{opened['trajectory_id']}/reward", {field: sent}, key=opened["api_key"])

    assert answered == status
    assert status == 200 or field in answer["error"]["message"]


@pytest.mark.parametrize("path", ["reward", "v1/../reward"])
@pytest.mark.parametrize(
    "reward", [{"score": 5, "step": 0}, {"score": 1}, {"reward": 1, "agent": "a"}, {"name": "own"}]
)
async def test_a_rollouts_key_rewards_nothing_beside_a_scorer(gateway, path, reward):
    judged, trusted = await gateway.open(scorer="my:score"), await gateway.open()

    async def post(opened, key):
        return await gateway.post(f"/r/{opened['trajectory_id']}/{path}", reward, key=key)

    refused = await post(judged, judged["api_key"])
    allowed = [await post(judged, "operator-key"), await post(trusted, trusted["api_key"])]

    assert refused[0] == 403
    assert refused[1]["error"]["code"] == "reward_refused"
    assert "'my:score'" in refused[1]["error"]["message"]
    assert [status for status, _ in allowed] == [200, 200]
    assert (await gateway.chat(judged, "hello"))[0] == 200


async def test_bad_requests_are_answered_in_one_sentence(gateway):
    opened = await gateway.open()

    for status, answer in (
        await gateway.post("/rollouts", {}),
        await gateway.post("/rollouts", {"task_id": "t", "rollout_id": "a/b"}),
        await gateway.post("/rollouts", {"task_id": "t", "unheard_of": 1}),
        await gateway.post(f"/r/{opened['trajectory_id']}/v1/chat/completions", {"model": "m"}),
    ):
        assert status == 400
        assert answer["error"]["message"]


async def test_an_integer_that_no_record_can_hold_is_a_bad_request(gateway):
    opened = await gateway.open()
    seed = {"seed": 2**70}

    for status, answer in (
        await gateway.chat(opened, "hello", **seed),
        await gateway.chat(opened, "hello", temperature=10**400),
        await gateway.post("/rollouts", {"task_id": "t", "sampling": seed}),
        await gateway.post(f"/r/{opened['trajectory_id']}/reward", {"score": 1, "step": 2**70}, key=opened["api_key"]),
    ):
        assert status == 400
        assert "64 bits" in answer["error"]["message"]
    assert gateway.log.parts() == []


async def test_both_addresses_name_the_model(gateway):
    opened = await gateway.open()

    for base, key in ((f"{gateway.url}/v1", "operator-key"), (opened["base_url"], opened["api_key"])):
        async with gateway.session.get(f"{base}/models", headers={"Authorization": f"Bearer {key}"}) as reply:
            assert [model["id"] for model in (await reply.json())["data"]] == ["scripted"]


async def test_a_call_id_has_to_be_a_name(gateway):
    opened = await gateway.open()

    status, _ = await gateway.chat(opened, "hello", headers={"x-agent-layer-call": "no spaces, please"})

    assert status == 400


async def test_a_rollout_that_this_gateway_does_not_know_is_lost(gateway):
    status, answer = await gateway.post("/rollouts/gone/close", {"attempt": 0})

    assert status == 404
    assert "the gateway restarted" in answer["error"]["message"]


async def test_version_0_is_registered_before_the_first_call(gateway, redis, keys):
    seen = []
    gateway.engine.script = lambda _: seen.extend(list_policies(redis, keys, "mine")) or "ok"
    opened = await gateway.open(run="mine")

    await gateway.chat(opened, "hello")
    await gateway.chat(opened, "hello")

    assert [(policy.run, policy.number, policy.location) for policy in seen] == [("mine", 0, "initial")] * 2
    assert [record.number for record in gateway.log.records if type(record).__name__ == "PolicyVersion"] == [0]
