"""Displayed steps: references filled in, each answer and reward at its step."""

import json

import msgspec

from agent_layer.cli.ui.trajectory_text import describe_trajectory
from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.sandbox import SandboxUsage
from agent_layer.schema.step import Action, Content, Observation, PromptDelta, StepPart, StepState
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.reading.display import show_step, show_trajectory

TID = "g.0-0"


def list_lines(shown):
    return [line for block in describe_trajectory(shown) for line in block.lines]


def content(value):
    body = json.dumps(value).encode()
    return Content(trajectory_id=TID, hash=content_hash(body), body=body)


SYSTEM, USER = content({"role": "system", "content": "guess"}), content({"role": "user", "content": "go"})
CALL = {"id": "x", "type": "function", "function": {"name": "oracle", "arguments": '{"n": 3}'}}


def part(call_id, at, phase="end", **fields):
    return StepPart(trajectory_id=TID, call_id=call_id, run="r", source="gateway", phase=phase, at=at, **fields)


def trajectory(*extra):
    first = part(
        "a",
        1.5,
        agent="solver",
        node="model",
        capture_level="tokens",
        engine="http://a:8000",
        status="ok",
        state=StepState(messages=[SYSTEM.hash, USER.hash], tools="not-stored"),
        prompt=PromptDelta(delta=TokenIds([1, 2])),
        sampling_asked={"temperature": 0},
        sampling_applied={"temperature": 1},
        actions=[
            Action(
                message={"role": "assistant", "content": None, "tool_calls": [CALL]},
                response_token_ids=TokenIds([3]),
                logprobs=Logprobs([-0.5]),
                finish_reason="tool_calls",
                policy_versions=[(4, 1)],
            )
        ],
    )
    second = part(
        "b",
        2.5,
        status="ok",
        prompt=PromptDelta(delta=TokenIds([9]), parent_call="a", prefix_length=3),
        actions=[Action(response_token_ids=TokenIds([5])), Action(response_token_ids=TokenIds([6]))],
    )
    answer = Observation(
        trajectory_id=TID,
        observation_id="o",
        run="r",
        name="oracle",
        at=2.0,
        call_id="a",
        arguments={"n": 3},
        output="higher",
        status="ok",
        duration_seconds=0.25,
    )
    starts = [part("a", 1.0, "start"), part("b", 2.0, "start")]
    return assemble_trajectory(TID, [*starts, first, second, answer, SYSTEM, USER, *extra])


def reward(score, reward_id="q", **fields):
    return Reward(trajectory_id=TID, reward_id=reward_id, run="r", at=3.0, score=score, **fields)


def test_a_step_shows_state_action_and_what_came_back():
    shown = show_step(trajectory(), trajectory().steps[0])

    assert shown["state"] == {
        "messages": [{"role": "system", "content": "guess"}, {"role": "user", "content": "go"}],
        "tools": "not-stored",
        "framework": None,
        "environment": None,
    }
    assert shown["action"] == {
        "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
        "tool_calls": [CALL],
        "prompt_token_ids": [1, 2],
        "response_token_ids": [3],
        "logprobs": [-0.5],
        "finish_reason": "tool_calls",
        "sampling": {"temperature": 1},
        "sampling_asked": {"temperature": 0},
        "policy_versions": [(4, 1)],
    }
    [observation] = shown["observations"]
    assert observation | {"at": None} == {
        "name": "oracle",
        "arguments": {"n": 3},
        "output": "higher",
        "status": "ok",
        "duration_ms": 250,
        "truncated": False,
        "at": None,
    }
    assert (shown["index"], shown["parent"], shown["agent"]) == (0, None, "solver")
    assert (shown["started_at"], shown["duration_ms"]) == ("1970-01-01T00:00:01.000Z", 500)


def test_choices_of_a_call_are_steps_that_share_their_prompt_and_parent():
    _, *choices = (show_step(trajectory(), step) for step in trajectory().steps)

    assert [one["parent"] for one in choices] == [0, 0]
    assert [one["action"]["prompt_token_ids"] for one in choices] == [[1, 2, 3, 9]] * 2
    assert [one["action"]["response_token_ids"] for one in choices] == [[5], [6]]


def test_an_answer_to_a_call_is_shown_once_though_the_call_has_two_choices():
    observation = Observation(trajectory_id=TID, observation_id="p", run="r", name="oracle", at=3.0, call_id="b")
    stored = trajectory(observation)

    assert [len(show_step(stored, step)["observations"]) for step in stored.steps] == [1, 1, 0]


def test_a_step_shows_the_sum_of_its_own_rewards_or_null():
    stored = trajectory(
        reward(0.25, "1", scope="step", step=0),
        reward(0.5, "2", scope="step", step=0, name="format"),
        reward(None, "3", scope="step", step=1, status="verifier_error"),
        reward(9.0, "4"),
    )

    assert [show_step(stored, step)["reward"] for step in stored.steps] == [0.75, None, None]


def test_a_whole_trajectory_is_its_row_and_everything_beside():
    stray = Observation(trajectory_id=TID, observation_id="s", run="r", name="reset", at=0.5, output={"n": 1})
    outcome = Outcome(trajectory_id=TID, run="r", status="completed", ended_at=4.0, result="3")
    row = TrajectoryRow(trajectory_id=TID, run="r", status="completed", reward=1.0, agents=["solver"])

    shown = show_trajectory(row, trajectory(stray, outcome, reward(1.0)))

    assert json.loads(json.dumps(shown))["trajectory_id"] == TID
    assert [step["index"] for step in shown["steps"]] == [0, 1, 2]
    assert [one["name"] for one in shown["observations"]] == ["reset"]
    assert [(one["name"], one["score"], one["at"]) for one in shown["rewards"]] == [
        ("reward", 1.0, "1970-01-01T00:00:03.000Z")
    ]
    assert (shown["outcome"]["result"], shown["outcome"]["ended_at"]) == ("3", "1970-01-01T00:00:04.000Z")


def test_as_text_each_message_is_said_once():
    row = TrajectoryRow(trajectory_id=TID, run="r", status="completed", reward=1.0)

    text = "\n".join(list_lines(show_trajectory(row, trajectory(reward(1.0)))))

    assert text.count("user: go") == 1
    assert 'assistant calls oracle({"n": 3})' in text
    assert 'oracle({"n":3}) → higher' in text
    assert "reward reward = 1  by agent" in text


def test_as_text_errors_of_steps_and_of_the_attempt_are_shown():
    row = TrajectoryRow(trajectory_id=TID, run="r", status="failed", cause="user")
    outcome = Outcome(trajectory_id=TID, run="r", status="failed", ended_at=4.0, error="ValueError('no move')")
    broken = part("c", 3.5, status="error", error="engine: answered 500")

    text = "\n".join(list_lines(show_trajectory(row, trajectory(outcome, part("c", 3.0, "start"), broken))))

    assert "  error: ValueError('no move')" in text.partition("step 0")[0]
    assert "  error: engine: answered 500" in text.partition("step 0")[2]


def test_as_text_what_the_sandboxes_took_is_one_line():
    row = TrajectoryRow(trajectory_id=TID, run="r", status="completed")
    usage = SandboxUsage(kind="session", boot_seconds=0.25, exec_seconds=1.5, num_execs=3, output_bytes=1200)
    scored = msgspec.structs.replace(usage, cpu_seconds=0.5, peak_memory_mb=64, scoring_seconds=2, num_scoring_boxes=1)
    begin = "session, ready after 0.25 s, 3 commands in 1.5 s,"
    end = "at most 64 MB, 1,200 bytes of output, scored in 1 fresh box, 2 s"
    for used, line in [(usage, f"{begin} 1,200 bytes of output"), (scored, f"{begin} 0.5 s of CPU, {end}")]:
        outcome = Outcome(trajectory_id=TID, run="r", status="completed", ended_at=4.0, sandbox=used)

        text = "\n".join(list_lines(show_trajectory(row, trajectory(outcome))))

        assert f"  sandbox     {line}\n" in text


def test_as_text_a_content_of_parts_is_its_texts():
    spoken_text = [
        {"type": "text", "text": 'say "go"\nand wait'},
        {"type": "image_url", "image_url": {"url": "data:…"}},
    ]
    spoken = content({"role": "user", "content": spoken_text})
    request = part("d", 3.5, status="ok", state=StepState(messages=[spoken.hash]))
    row = TrajectoryRow(trajectory_id=TID, run="r", status="completed")

    lines = list_lines(show_trajectory(row, trajectory(spoken, part("d", 3.0, "start"), request)))

    at = lines.index('  user: say "go"')
    assert lines[at + 1 : at + 3] == ["        and wait", "        [image_url]"]


def test_as_text_a_reward_says_what_it_is_of():
    row = TrajectoryRow(trajectory_id=TID, run="r", status="completed", reward=1.0)
    judged = [reward(0.5, "1", scope="step", step=0), reward(0.25, "2", scope="agent", agent="solver")]

    text = "\n".join(list_lines(show_trajectory(row, trajectory(*judged))))

    assert "reward reward of step 0 = 0.5" in text
    assert "reward reward of agent solver = 0.25" in text
    assert "step 0  solver  model  ok  2 + 1 tokens  policy 4  by http://a:8000  reward 0.5" in text
