"""The progress file: JSON that every reader understands, whatever an update measured."""

import json

import msgspec

from agent_layer.health import RoundProgress, StepProgress, append_progress, read_progress

STEP = StepProgress(
    run="r",
    step=1,
    policy_version=1,
    ended_at=0.0,
    num_rollouts=2,
    num_samples=2,
    num_calls=2,
    num_tokens=2,
    reward_mean=None,
    success=None,
    untrainable={"greedy": 1, "unreproducible:top_p": 2},
)


def test_a_metric_that_is_no_number_kills_no_reader(tmp_path):
    path = tmp_path / "runs" / "progress.jsonl"
    later = msgspec.structs.replace(STEP, step=2, metrics={"grad_norm": None, "entropy": 0.5})

    append_progress(path, STEP)
    append_progress(path, later)

    assert read_progress(path) == [STEP, later]
    assert [step.num_untrainable for step in read_progress(path)] == [3, 3]


def test_an_infinite_number_is_written_as_json(tmp_path):
    path = tmp_path / "runs" / "progress.jsonl"

    append_progress(path, msgspec.structs.replace(STEP, metrics={"kl": float("nan"), "ratio": float("inf")}))

    (line,) = path.read_text().splitlines()
    assert json.loads(line, parse_constant=lambda name: name)["metrics"] == {"kl": None, "ratio": None}
    assert read_progress(path)[0].metrics == {"kl": None, "ratio": None}


def test_the_line_of_a_step_ends_with_its_held_out_rounds_and_what_they_lack():
    whole = RoundProgress(
        name="repair",
        round="r.repair.000020",
        policy_version=20,
        pass_rate=0.4167,
        reward_mean=0.5,
        num_rewards=12,
        num_asked=12,
    )
    short = msgspec.structs.replace(whole, name="math", pass_rate=None, num_rewards=0)

    line = str(msgspec.structs.replace(STEP, evaluations=[whole, short]))

    assert line.endswith("  held out: repair 0.42 (version 20)  held out: math - (version 20, 0 of 12 rollouts)")
