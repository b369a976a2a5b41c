"""A rollout's sampling seed decides the seed of each of its calls, whatever the timing."""

import asyncio

from agent_layer.schema import AGENT_HEADER


def seeds(gateway):
    return [call.body.get("seed") for call in gateway.engine.calls]


async def ask(gateway, *questions, sampling_seed=1, **fields):
    """Ask in a rollout of its own; return the seeds that the engine got."""
    opened, num_before = await gateway.open(sampling_seed=sampling_seed, **fields), len(gateway.engine.calls)
    for question in questions:
        await gateway.chat(opened, question)
    return seeds(gateway)[num_before:]


async def test_the_same_seed_gives_the_same_calls_the_same_seeds(gateway):
    first, second = [await ask(gateway, "hello", "there", sampling_seed=7) for _ in range(2)]

    assert first == second
    assert all(isinstance(seed, int) for seed in first)


async def test_no_two_calls_of_a_rollout_and_no_two_rollouts_sample_alike(gateway):
    found = [seed for number in range(3) for seed in await ask(gateway, "hello", "hello", sampling_seed=number)]

    assert len(set(found)) == 6


async def test_the_seed_of_a_call_is_recorded_as_applied(gateway):
    opened = await gateway.open(sampling_seed=1)

    await gateway.chat(opened, "hello")

    step = gateway.step(opened)
    assert "seed" not in step.sampling_asked
    assert [step.sampling_applied["seed"]] == seeds(gateway)


async def test_a_call_that_is_made_again_after_a_failure_samples_the_same(gateway):
    opened, call = await gateway.open(sampling_seed=1), {"x-agent-layer-call": "call-1"}
    served, gateway.engine.model = gateway.engine.model, "away"

    failed, _ = await gateway.chat(opened, "hello", headers=call)
    gateway.engine.model = served
    worked, _ = await gateway.chat(opened, "hello", headers=call)
    await gateway.chat(opened, "hello", headers={"x-agent-layer-call": "call-2"})

    assert (failed, worked) == (404, 200)
    first, again, other = [
        step.sampling_applied["seed"] for step in gateway.log.trajectory(opened["trajectory_id"]).steps
    ]
    assert first == again != other


async def test_the_calls_of_one_agent_do_not_change_the_seeds_of_another(gateway):
    found: list[dict[str, list[int]]] = []
    for order in ("aabb", "baba"):
        opened = await gateway.open(sampling_seed=1)
        by_agent = {"a": [], "b": []}
        for agent in order:
            await gateway.chat(opened, "hello", headers={AGENT_HEADER: agent})
            by_agent[agent].append(seeds(gateway)[-1])
        found.append(by_agent)

    assert found[0] == found[1]
    assert len({*found[0]["a"], *found[0]["b"]}) == 4


async def test_a_seed_that_the_task_names_is_applied_as_it_is(gateway):
    assert await ask(gateway, "hello", sampling={"seed": 5}) == [5]


async def test_without_a_sampling_seed_none_is_sent(gateway):
    assert await ask(gateway, "hello", sampling_seed=None) == [None]


async def test_an_answer_with_a_seed_is_continued_with_another_seed(preempting_gateway, until, switch):
    gateway = preempting_gateway
    gateway.engine.script = lambda _: " ".join(f"w{index}" for index in range(40))
    gateway.engine.token_seconds = 0.01
    opened = await gateway.open(sampling_seed=1)

    calling = asyncio.create_task(gateway.chat(opened, "go", max_tokens=100))
    await until(lambda: sum(len(call.token_ids[0]) for call in gateway.engine.calls) > 5)
    await switch(gateway, 1)
    await calling

    assert "continued" in gateway.step(opened).findings
    first, rest = seeds(gateway)
    assert isinstance(rest, int)
    assert rest != first
