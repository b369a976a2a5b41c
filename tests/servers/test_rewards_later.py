"""Later rewards replace earlier ones, and none is lost."""

import math

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.cli.main import build
from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.recorder import open_recorder
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward, current_rewards, rollout_reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.schema.task import RewardSpec
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.reading.display import show_trajectory
from agent_layer.store.reading.rewards import commit_reward, make_reward, supersede_current


def make_attempt(tid="x.0-0", score=1.0, declared=(), cause=None, status="ok"):
    own = {"trajectory_id": tid, "run": "r"}
    rewards = {name: RewardSpec() for name in declared}
    part = {**own, "source": "gateway", "call_id": f"{tid}/a", "agent": "solver"}
    answer = Action(response_token_ids=TokenIds([3]), logprobs=Logprobs([-0.5]), policy_versions=[(4, 1)])
    return [
        AttemptStarted(**own, rollout_id=tid[:-2], attempt=0, task_id="t", started_at=100.0, rewards=rewards),
        StepPart(**part, phase="start", at=101.0, prompt=PromptDelta(delta=TokenIds([1, 2]))),
        StepPart(**part, phase="end", at=102.0, actions=[answer], status="ok"),
        Reward(**own, reward_id=f"{tid}/r", at=103.0, score=score, source="verifier", status=status),
        Outcome(**own, status="completed", ended_at=104.0, num_calls=1, cause=cause),
        Accepted(**own, rollout_id=tid[:-2], accepted_at=105.0),
    ]


@pytest.fixture
def judge(store, objects_settings):
    """``judge(score, **options)``: a person's reward for the stored trajectory, once it is indexed."""

    def judge(score, tid="x.0-0", **options):
        given = store.reward(tid, score, **options)
        assert open_recorder(objects_settings).flush().pending == 0
        return given

    yield judge
    open_recorder(objects_settings).close()


def test_a_person_s_word_replaces_what_stood_and_the_history_stays(store, write, judge):
    write(*make_attempt(score=1.0), *make_attempt("y.0-0", score=1.0))

    first = judge(0.25, comment="guessed")
    second = judge(0.5)

    trajectory = store.get("x.0-0")
    assert [(one.score, one.source, one.supersedes) for one in trajectory.rewards] == [
        (1.0, "verifier", None),
        (0.25, "human", "x.0-0/r"),
        (0.5, "human", first.reward_id),
    ]
    assert trajectory.rewards[1].comment == "guessed"
    assert current_rewards(trajectory.rewards) == [second]
    assert trajectory.reward == store.row("x.0-0").reward == 0.5
    assert [row.trajectory_id for row in store.query(reward=(0.4, 0.6)).items] == ["x.0-0"]
    assert [row.trajectory_id for row in store.query(reward=(0.9, None)).items] == ["y.0-0"]


def test_a_judgement_can_be_taken_back(store, write, judge):
    write(*make_attempt())

    judge(None)

    assert store.row("x.0-0").reward is None
    assert store.query(reward=(-9, 9)).items == []


def test_steps_and_agents_are_judged_beside_the_rollout(store, write, judge):
    write(*make_attempt())

    step, again = judge(0.1, step=0), judge(0.2, step=0)
    agent = judge(0.3, agent="solver")

    assert (step.scope, again.supersedes, agent.scope, agent.supersedes) == ("step", step.reward_id, "agent", None)
    assert store.row("x.0-0").reward == 1.0
    shown = show_trajectory(store.row("x.0-0"), store.get("x.0-0"))
    assert shown["steps"][0]["reward"] == 0.2
    assert [one["is_current"] for one in shown["rewards"]] == [True, False, True, True]


@pytest.mark.parametrize(
    ("score", "options", "sentence"),
    [
        (math.nan, {}, "expected a finite number, found nan"),
        (math.inf, {}, "expected a finite number"),
        (1.0, {"step": 1}, "number of its steps, which is 1, found 1"),
        (1.0, {"agent": "critic"}, r"\(solver\), found 'critic'"),
        (1.0, {"agent": "solver", "step": 0}, "found both"),
        (1.0, {"name": "no name"}, "reward name 'no name'"),
        (1.0, {"reward_id": "a/b"}, "reward id 'a/b'"),
    ],
)
def test_what_nobody_could_count_is_refused(store, write, score, options, sentence):
    write(*make_attempt())

    with pytest.raises(BadInputError, match=sentence):
        store.reward("x.0-0", score, **options)
    assert len(store.get("x.0-0").rewards) == 1


def test_nobody_judges_what_is_not_stored(store):
    with pytest.raises(NotFoundError, match=r"trajectory 'x\.0-0'"):
        store.reward("x.0-0", 1.0)


def test_a_judgement_with_an_id_counts_once_however_often_it_is_said(store, write, judge):
    write(*make_attempt())

    hasty = [store.reward("x.0-0", score, reward_id="form-17") for score in (0.5, 0.7)]
    later = judge(0.9, reward_id="form-17")

    assert hasty == [later, later]
    assert [one.score for one in store.get("x.0-0").rewards] == [1.0, 0.5]
    assert store.row("x.0-0").reward == 0.5


def test_who_says_the_same_id_at_once_writes_the_same_and_no_words_stay_in_redis(store):
    message = Reward(trajectory_id="x-0", reward_id="a", run="r", at=1.0, score=1.0, comment="my name is Ann")

    assert commit_reward(store.redis, store.keys, message) == message
    assert commit_reward(store.redis, store.keys, msgspec.structs.replace(message, at=2.0, score=0.0)) == message
    assert not any(b"Ann" in store.redis.get(key) for key in store.redis.keys(store.keys.name("judged", "*")))


def test_late_judgements_survive_the_loss_of_the_index(store, write, judge):
    write(*make_attempt())
    judge(0.25, comment="guessed")
    before = store.row("x.0-0"), store.get("x.0-0")

    store.admin.reindex(drop=True)

    assert (store.row("x.0-0"), store.get("x.0-0")) == before


def test_a_failed_verifier_is_made_good_by_a_judgement_that_supersedes_it(store, write, judge):
    write(*make_attempt(score=None, status="verifier_error", cause="verifier"))
    assert store.row("x.0-0").reward is None

    judge(0.5)

    assert store.row("x.0-0").reward == store.get("x.0-0").reward == 0.5


def test_other_failures_stay_null_whatever_people_say(store, write, judge):
    write(*make_attempt(cause="infra"))

    judge(1.0)

    assert store.row("x.0-0").reward is None


scores = st.none() | st.floats(-1, 1)


@given(st.lists(st.tuples(st.sampled_from("ab"), scores, st.booleans(), st.floats(0, 9)), max_size=6), st.randoms())
def test_the_last_word_stands_whatever_clocks_say(message, random):
    """A reward supersedes those that existed when it was made, even under a slow clock; a void one never counts."""
    known, last = [], {}
    for number, (name, score, void, at) in enumerate(message):
        row = TrajectoryRow(trajectory_id="x-0", run="r")
        made = make_reward(row, score, {"name": name, "reward_id": f"id{number}"}, "r")
        made = supersede_current(made, known)
        known.append(msgspec.structs.replace(made, at=at, void=void, supersedes=None if void else made.supersedes))
        if not void:
            last[name] = score
    random.shuffle(known)

    assert {one.name: one.score for one in current_rewards(known)} == last
    judged = [score for score in last.values() if score is not None]
    expected = sum(judged) if last and len(judged) == len(last) else None
    assert rollout_reward({}, known, None) == (expected if expected is None else pytest.approx(expected))


@pytest.fixture
def agent_layer(objects_settings, monkeypatch, capsys):
    """``agent_layer("reward", "x.0-0", "1")`` gives what it prints."""
    for name, value in objects_settings.environment().items():
        monkeypatch.setenv(name, value)

    def run(*arguments):
        build()(arguments, standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_the_command_says_what_it_changed_and_what_does_not_count(write, agent_layer):
    write(*make_attempt(declared=["reward"]))

    assert "reward = -1, 1 by verifier before; its reward is -1" in agent_layer("reward", "x.0-0", "-1")
    errors = agent_layer("reward", "x.0-0", "0.5", "--name", "style", "--comment", "stiff")
    assert "'style' is kept but does not count: the task declares reward" in errors
    shown = agent_layer("show", "x.0-0")
    assert "reward reward = 1  by verifier  (superseded)" in shown
    assert "reward style = 0.5  by human  “stiff”" in shown
    with pytest.raises(BadInputError, match="expected a number or 'none'"):
        agent_layer("reward", "x.0-0", "good")


@pytest.mark.long
def test_more_rewards_than_a_script_can_hand_on_at_once_are_entered(store, write, make_attempt):
    own = {"trajectory_id": "x.0-0", "run": "r", "at": 1.0, "scope": "step", "score": 1.0}
    write(*make_attempt("x.0-0"), *(Reward(**own, reward_id=f"s{n}", step=0) for n in range(8_200)))

    assert store.row("x.0-0").reward == 1.0
    assert store.admin.check().findings == []
