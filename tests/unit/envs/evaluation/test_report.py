"""What people read of a round."""

import pytest

from envs.evaluation import RoundSettings
from envs.evaluation.figures.figures import MeasuredAttempt, TaskRef, compute_figures
from envs.evaluation.report import print_round
from envs.evaluation.rounds import EvaluatedAgent, EvaluatedModel, Round, TaskSource

TASK, YARDSTICK = TaskRef(id="t1", input_hash="h1"), RoundSettings(n=1, threshold=1.0, seed=0)
ROUND = Round(
    name="r1",
    agent=EvaluatedAgent(target="my_agent:agent", version="1"),
    model=EvaluatedModel(kind="engine", name="policy", location="/models/a", fingerprint="f1"),
    source=TaskSource(name="tasks.jsonl"),
    tasks=[TASK],
    tasks_hash="h",
    yardstick=YARDSTICK,
    sampling={},
    scorer="agent",
    price=None,
    started_at=1_700_000_000.0,
)


@pytest.mark.parametrize(("reward", "is_noted"), [(0.9, True), (1.0, False), (0.0, False)])
def test_rewards_that_all_stay_below_the_threshold_are_pointed_out(reward, is_noted, capsys):
    attempt = MeasuredAttempt(
        trajectory_id="a-0",
        rollout_id="a",
        task_id="t1",
        is_accepted=True,
        status="completed",
        cause=None,
        reward=reward,
        num_calls=1,
    )
    figures, _ = compute_figures([TASK], [attempt], YARDSTICK)

    print_round(ROUND, figures)

    assert ("none reaches 1, so none passes; see --threshold" in capsys.readouterr().out) is is_noted
