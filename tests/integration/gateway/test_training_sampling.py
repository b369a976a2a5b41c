"""In a training rollout the policy samples what a trainer can reproduce; others sample as they ask."""

import pytest

from agent_layer.engines import NEUTRAL_SAMPLING
from agent_layer.errors import CaptureError
from agent_layer.local.scripted import engine as scripted
from trainer_adapter.data import samples_of
from trainer_adapter.data.samples import read_samples

HIDDEN = {"temperature": 0, "top_p": 0.5, "top_k": 20, "logit_bias": {"3": 1.0}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}


def sent(gateway):
    """What shaped the answers, as the engine got it."""
    return [{name: call.body.get(name) for name in (*NEUTRAL_SAMPLING, "logit_bias")} for call in gateway.engine.calls]


async def test_a_training_rollout_samples_what_a_trainer_can_reproduce(gateway):
    opened = await gateway.open(group_id="g")

    await gateway.chat(opened, "hello", **HIDDEN)

    step = gateway.step(opened)
    assert sent(gateway) == [{**NEUTRAL_SAMPLING, "logit_bias": None}]
    assert (step.sampling_asked, step.temperature) == (HIDDEN, 1.0)
    assert step.sampling_applied == {**NEUTRAL_SAMPLING, "logit_bias": None}
    assert step.findings == [f"neutralised:{name}" for name in sorted(HIDDEN)]
    assert samples_of(gateway.log.trajectory(opened["trajectory_id"])).samples


async def test_an_engine_fills_no_field_of_a_training_rollout_by_itself(gateway):
    opened = await gateway.open(sampling={"temperature": 0.7})

    await gateway.chat(opened, "hello")

    assert sent(gateway) == [{**NEUTRAL_SAMPLING, "temperature": 0.7, "logit_bias": None}]
    assert gateway.step(opened).findings == []


@pytest.mark.parametrize(
    ("about", "headers"), [({"split": "eval"}, {}), ({}, {"x-agent-layer-role": "aux"})], ids=["eval", "aux"]
)
async def test_what_is_not_trained_samples_as_it_asks(gateway, about, headers):
    opened = await gateway.open(group_id="g", **about)

    status, _ = await gateway.chat(opened, "hello", headers=headers, response_format=SCHEMA, **HIDDEN)

    step = gateway.step(opened)
    assert status == 200
    assert sent(gateway) == [dict.fromkeys(NEUTRAL_SAMPLING) | HIDDEN]
    assert (step.sampling_applied, step.findings) == (HIDDEN | {"response_format": SCHEMA}, [])


async def test_a_task_overrides_the_sampling_of_its_policy_and_not_that_of_a_judge(gateway):
    opened = await gateway.open(group_id="g", sampling={"temperature": 0.9, "max_tokens": 5})

    await gateway.chat(opened, "hello", temperature=0, max_tokens=7)
    await gateway.chat(opened, "judge this", headers={"x-agent-layer-role": "aux"}, temperature=0, max_tokens=7)

    policy, judge = [call.body for call in gateway.engine.calls]
    assert (policy["temperature"], policy["max_tokens"]) == (0.9, 5)
    assert (judge["temperature"], judge["max_tokens"]) == (0, 7)


async def test_a_rollout_that_no_trainer_takes_keeps_its_sampling_and_says_what_cannot_be_trained(gateway):
    opened = await gateway.open()

    await gateway.chat(opened, "hello", **HIDDEN)

    assert sent(gateway) == [NEUTRAL_SAMPLING | HIDDEN]
    assert gateway.step(opened).findings == [
        "greedy",
        "unreproducible:logit_bias",
        "unreproducible:top_k",
        "unreproducible:top_p",
    ]
    with pytest.raises(CaptureError, match=r"a temperature above 0, at least 0\.01 and sampling without logit_bias"):
        samples_of(gateway.log.trajectory(opened["trajectory_id"]))


async def test_a_log_probability_that_the_engine_clamped_is_a_finding(gateway, monkeypatch):
    monkeypatch.setattr(scripted, "token_logprob", lambda _: -9999.0)
    opened = await gateway.open(group_id="g")

    await gateway.chat(opened, "hello")

    assert gateway.step(opened).findings == ["bad_logprobs"]


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


@pytest.mark.parametrize(
    ("content", "findings"),
    [
        ([{"type": "text", "text": "look"}, IMAGE], ["images"]),
        ([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}], ["audio"]),
        ([{"type": "text", "text": '{"type": "image_url"}'}], []),
        ('what is an "image_url"?', []),
    ],
)
async def test_a_prompt_that_is_not_text_alone_is_found_and_not_trained(gateway, content, findings):
    opened = await gateway.open(group_id="g")

    await gateway.chat(opened, content)

    assert gateway.step(opened).findings == findings
    found = read_samples(gateway.log.trajectory(opened["trajectory_id"]))
    assert getattr(found, "kind", None) == (findings[0] if findings else None)


async def test_an_image_that_only_a_judge_saw_changes_nothing(gateway):
    opened = await gateway.open(group_id="g")

    await gateway.chat(opened, [IMAGE], headers={"x-agent-layer-role": "aux"})

    assert gateway.step(opened).findings == []
