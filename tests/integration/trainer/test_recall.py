"""Recall finds all that learned from a fault: equal to a count of the raw records, which shares no code with it."""

import json
from collections import defaultdict
from functools import partial

import msgspec
import pytest

from agent_layer.schema.reward import Label, current_rewards
from agent_layer.schema.training import CheckpointRef, PolicyVersion
from agent_layer.store import open_store
from trainer_adapter.config import SourceConfig, TrainConfig, write_config
from trainer_adapter.lineage import walk_lineage, write_parent
from trainer_adapter.loop.checkpoint import CheckpointDirectory, Cursor, hold_run
from trainer_adapter.tasks.exclusions import read_exclusions, write_exclusions
from trainer_adapter.tasks.state import Draw

from ...builders import attempt
from ...planted import BAD, SCORER, WRONG_STEPS, branch, plant_history
from ...stored import lose_index, stored_records, write_segment

RUN = "r"


@pytest.fixture
def store(settings):
    return open_store(settings)


@pytest.fixture
def recall(agent_layer):
    """``recall(*options)``: what the command prints as JSON."""

    def run(*options):
        status, out, err = agent_layer("recall", *options, "--json")
        assert status == 0, err
        return json.loads(out)

    return run


class Raw:
    """The stored records as plain maps, and what they say when they are counted by hand."""

    def __init__(self, store):
        self.by_type = defaultdict(dict)
        for content in stored_records(store):
            record = msgspec.msgpack.decode(content)
            self.by_type[record["type"]][content] = record

    def __getitem__(self, kind):
        return list(self.by_type[kind].values())

    def updates(self, run):
        """The batch of each step that counts."""
        found = {}
        for batch in sorted(self["trained_batch"], key=lambda one: one["trained_at"]):
            if batch["run"] == run:
                found[batch["step"]] = batch
        return found

    def tokens(self, batch):
        """Tokens by trajectory, as the update computed them."""
        return {
            one["trajectory_id"]: len(one["mask"])
            for one in self["trained_tokens"]
            if one["batch_id"] == batch["batch_id"]
        }

    def taught(self, run, matches):
        """By step: (recalled trajectories, their tokens, those of their groups, all tokens)."""
        found = {}
        for step, batch in self.updates(run).items():
            tokens = self.tokens(batch)
            ours = [one for one in batch["rollouts"] if matches(one)]
            groups = {one["group_id"] for one in ours}
            beside = [one for one in batch["rollouts"] if one["group_id"] in groups]
            if ours:
                found[step] = (
                    sorted(one["trajectory_id"] for one in ours),
                    sum(tokens.get(one["trajectory_id"], 0) for one in ours),
                    sum(tokens.get(one["trajectory_id"], 0) for one in beside),
                    sum(tokens.values()),
                )
        return found


def answered(found, run=RUN):
    return {
        one["step"]: (
            sorted(one["trajectory_ids"]),
            one["num_tokens"],
            one["num_group_tokens"],
            one["num_all_tokens"],
        )
        for one in found["updates"]
        if one["run"] == run
    }


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_what_learned_from_a_scorer_that_was_wrong_for_20_versions_is_what_the_raw_records_say(store, recall, seed):
    plant_history(store, seed=seed)
    raw = Raw(store)
    wrong = {
        one["reward_id"] for one in raw["reward"] if one.get("scorer") == SCORER and one.get("verifier_hash") == BAD
    }
    judged = {one["trajectory_id"] for one in raw["reward"] if one["reward_id"] in wrong}
    expected = raw.taught(RUN, lambda rollout: not wrong.isdisjoint(rollout["reward_ids"]))

    def check():
        found = recall("--scorer", SCORER, "--version", BAD[:4])
        assert answered(found) == expected
        assert {one["trajectory_id"] for one in found["trajectories"]} == judged
        assert found["num_learned"] == len({name for names, *_ in expected.values() for name in names}) < len(judged)
        (of_run,) = found["runs"]
        assert (of_run["step"], of_run["num_updates"], of_run["num_recalled_updates"]) == (40, 40, len(expected))
        assert of_run["num_tokens"] == sum(tokens for _, tokens, _, _ in expected.values())
        assert of_run["num_all_tokens"] == sum(sum(raw.tokens(one).values()) for one in raw.updates(RUN).values())
        assert (of_run["clean"]["run"], of_run["clean"]["step"]) == (RUN, min(expected) - 1)

    assert set(expected) <= set(WRONG_STEPS)
    check()
    lose_index(store)  # the bucket alone
    check()


@pytest.mark.parametrize(
    ("options", "matches"),
    [
        (["--task", "t1"], lambda one: one["group_id"].endswith("g1")),
        (["--engine", "http://e2:1"], lambda one: int(one["group_id"][2:-2]) % 2 == 0),
        (["--label", "bad=yes"], lambda one: one["group_id"] == "rs7g0"),
    ],
    ids=["task", "engine", "label"],
)
def test_other_conditions_recall_whole_trajectories(store, recall, options, matches):
    plant_history(store, num_steps=12, groups=2)
    labels = {"run": RUN, "at": 9_000.0, "name": "bad", "value": "yes"}
    members = [f"rs7g0.{member}-0" for member in range(4)]
    write_segment(store, *(Label(**labels, trajectory_id=one, label_id=f"{one}/l") for one in members))

    assert answered(recall(*options)) == Raw(store).taught(RUN, matches)


def test_a_run_that_branched_off_learned_what_its_parent_had_learned(agent_layer, store, recall):
    plant_history(store, num_steps=16)
    branch(store, "early", RUN, 10)
    branch(store, "late", RUN, 15)

    found = recall("--scorer", SCORER, "--version", BAD)
    of_late = recall("--scorer", SCORER, "--version", BAD, "--run", "late")

    assert [one["run"] for one in found["runs"]] == ["late", RUN]
    assert [one["step"] for one in of_late["updates"]] == list(range(11, 16))
    assert of_late["runs"][0]["clean"]["step"] == 10
    of_early = ["--scorer", SCORER, "--version", BAD, "--run", "early"]
    assert recall(*of_early)["runs"] == []
    status, out, err = agent_layer("recall", *of_early, "--retrain")
    assert (status, "every checkpoint is clean" in out) == (2, True)
    assert "expected a run that learned from them, found none" in err


def write_weights(step, directory):
    (directory / "weights").write_text(f"of step {step}")


def save_checkpoints(settings, run, *steps):
    for step in steps:
        draws = [Draw(source="tasks", index=one, task_id=f"t{one}") for one in range(3)]
        cursor = Cursor(
            step=step,
            policy_version=step,
            num_asked=step + 3,
            open_positions=[step, step + 1, step + 2],
            open_starts=[step, step, step + 1],
            open_draws=draws,
            taken=["g"],
        )
        CheckpointDirectory(settings, run).save(cursor, partial(write_weights, step))


@pytest.mark.parametrize(
    ("options", "open_tasks", "excluded"),
    [
        (["--scorer", SCORER, "--version", BAD], ["t0", "t1", "t2"], []),
        pytest.param(
            *(["--task", "t1", "--since", "1970-01-01T00:18:00Z"], ["t0", "t2"], ["t1"]), marks=pytest.mark.long
        ),
    ],
    ids=["the scorer's fault", "the task's fault"],
)
def test_a_new_run_begins_at_the_last_clean_checkpoint_without_what_was_at_fault(
    agent_layer, settings, store, options, open_tasks, excluded
):
    plant_history(store, num_steps=16)
    save_checkpoints(settings, RUN, 4, 8, 12, 16)

    status, out, err = agent_layer("recall", *options, "--retrain", "--as", "n")

    assert (status, "run n begins with step 8 of run r" in err) == (0, True), err
    assert "last clean checkpoint: step 8 of run r, in " in out
    assert "'agent-layer train CONFIG --run n' trains it" in err
    directory, cursor = CheckpointDirectory(settings, "n").newest()
    assert (directory / "weights").read_text() == "of step 8"
    assert [draw.task_id for draw in cursor.open_draws] == open_tasks
    assert len(cursor.open_positions) == len(cursor.open_starts) == len(open_tasks)
    assert (cursor.step, cursor.policy_version, cursor.first_version, cursor.taken) == (8, None, 1, [])
    assert [sorted(one.ids) for one in read_exclusions(settings, "n")] == ([excluded] if excluded else [])

    lose_index(store)  # the lineage is in the bucket
    status, out, err = agent_layer("recall", *options, "--run", "n")
    assert (status, "no update learned from them" in out) == (0, True), err
    assert [(one.run, one.step) for one in walk_lineage(store, "n")] == [(RUN, step) for step in range(8, 0, -1)]

    status, _, err = agent_layer("recall", *options, "--run", RUN, "--retrain", "--as", "n")
    assert (status, "expected a new name, found a run that has begun" in err) == (2, True)


def test_a_preparation_that_was_killed_is_completed_by_the_same_command(agent_layer, settings, store):
    plant_history(store, num_steps=12, groups=1)
    save_checkpoints(settings, RUN, 8)
    command = ["recall", "--scorer", SCORER, "--version", BAD, "--retrain", "--as", "n"]
    branch(store, "n", RUN, 8)  # all that the killed one had done

    with hold_run(settings, "n"):
        status, _, err = agent_layer(*command)
    assert (status, "run n: expected no other trainer" in err) == (2, True), err
    assert CheckpointDirectory(settings, "n").newest() is None

    status, _, err = agent_layer(*command)
    assert (status, "run n begins with step 8 of run r" in err) == (0, True), err
    assert CheckpointDirectory(settings, "n").newest()[1].step == 8


@pytest.mark.parametrize(
    ("number", "parent"), [(0, None), (0, ("other", 8)), (1, (RUN, 8))], ids=["own", "of another", "trained"]
)
def test_a_run_that_has_begun_is_not_begun_again(agent_layer, settings, store, number, parent):
    plant_history(store, num_steps=12, groups=1)
    save_checkpoints(settings, RUN, 8)
    origin = parent and CheckpointRef(run=parent[0], step=parent[1])
    for one in range(number + 1):
        write_segment(store, PolicyVersion(run="n", number=one, location="w", created_at=0.0, parent=origin))

    status, _, err = agent_layer("recall", "--scorer", SCORER, "--version", BAD, "--retrain", "--as", "n")

    assert (status, "expected a new name, found a run that has begun" in err) == (2, True), err
    assert read_exclusions(settings, "n") == []


def test_a_second_recall_does_not_bring_back_the_tasks_of_the_first(agent_layer, settings, store):
    plant_history(store, num_steps=11, groups=2)
    save_checkpoints(settings, RUN, 8)
    write_exclusions(settings, RUN, ["t0"])

    status, _, err = agent_layer(
        *("recall", "--task", "t1", "--since", "1970-01-01T00:18:00Z", "--retrain", "--as", "n")
    )

    assert (status, "without 2 tasks" in err) == (0, True), err
    assert [one.ids for one in read_exclusions(settings, "n")] == [{"t0", "t1"}]
    assert [draw.task_id for draw in CheckpointDirectory(settings, "n").newest()[1].open_draws] == ["t2"]


def test_a_model_that_learned_from_them_is_no_clean_beginning(agent_layer, store, tmp_path):
    plant_history(store, num_steps=12, groups=1)
    write_parent(tmp_path, CheckpointRef(run=RUN, step=11))
    config = tmp_path / "run.json"
    tasks = [SourceConfig(name="tasks", path=tmp_path / "tasks.jsonl")]
    write_config(TrainConfig(tasks=tasks, model=tmp_path, steps=1), config)
    options = ["--scorer", SCORER, "--version", BAD, "--retrain", "--as", "n", "--config", config]

    status, _, err = agent_layer("recall", *options)

    assert (status, "expected weights of step 10 of run r or from before it" in err) == (2, True), err


def test_without_a_clean_checkpoint_the_new_run_begins_with_its_model(agent_layer, settings, store):
    plant_history(store, num_steps=16)
    save_checkpoints(settings, RUN, 12, 16)

    status, out, err = agent_layer("recall", "--task", "t1", "--run", RUN, "--retrain")

    assert (status, "begins with the model of its configuration, without 1 task" in err) == (0, True), err
    assert "this machine keeps no checkpoint up to there" in out
    assert "last clean: step 0 of run r (the model that run r began with)" in out
    assert CheckpointDirectory(settings, f"{RUN}-recalled").newest() is None
    assert [one.ids for one in read_exclusions(settings, f"{RUN}-recalled")] == [{"t1"}]


def test_the_recalled_are_judged_again_by_their_scorer_as_it_is_now(agent_layer, store, write_module):
    scorer = "mended_judge:score"
    write_module("mended_judge", "async def score(task, trajectory, result):\n    return 0.25\n")
    plant_history(store, num_steps=14, groups=1, scorer=scorer)
    bad = [one for one in Raw(store)["reward"] if (one.get("scorer"), one.get("verifier_hash")) == (scorer, BAD)]
    before = {one["trajectory_id"]: store.get(one["trajectory_id"]).rewards for one in bad}
    wrong = [
        one
        for one in bad
        if one["reward_id"] in {now.reward_id for now in current_rewards(before[one["trajectory_id"]])}
    ]

    status, _, err = agent_layer("recall", "--scorer", scorer, "--version", BAD, "--rescore")

    assert (status, f"{scorer} judges {len(wrong)} trajectories again" in err) == (0, True), err
    assert 0 < len(wrong) < len(bad)
    for one in wrong:
        rewards = store.get(one["trajectory_id"]).rewards
        (new,) = [reward for reward in rewards if reward not in before[one["trajectory_id"]]]
        assert (new.score, new.scorer, new.supersedes) == (0.25, scorer, one["reward_id"])
        assert len(rewards) == len(before[one["trajectory_id"]]) + 1  # nothing is overwritten


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ([], "expected a scorer or a filter, found neither"),
        (["--version", "b"], "expected at least 4 characters of a version, found 'b'"),
        (["--scorer", "unknown"], f"expected judgements by unknown, found those by {SCORER}"),
        (["--scorer", SCORER, "--version", "ffff"], "name one of them"),
        (["--task", "t1", "--retrain", "--config", "no.yaml"], "no.yaml"),
        (["--task", "t1", "--json", "--rescore"], "give one of them"),
        (["--task", "t1", "--as", "x"], "--as and --config are for --retrain"),
        (["--task", "nothing", "--json"], "expected trajectories that pass all conditions, found none"),
        (["--task", "t1", "--run", "unknown"], "expected trajectories that pass all conditions, found none"),
    ],
)
def test_what_cannot_be_recalled_is_refused_with_what_to_do(agent_layer, store, options, error):
    plant_history(store, num_steps=2, groups=1)

    status, _, err = agent_layer("recall", *options)

    assert (status, error in err, err.count("\n")) == (2, True, 1), err


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_deletion_says_which_updates_had_learned_from_the_deleted(agent_layer, store, dry_run):
    plant_history(store, num_steps=12, groups=2)
    steps = sorted(Raw(store).taught(RUN, lambda one: one["trajectory_id"] in ("rs7g0.0-0", "rs9g1.2-0")))
    assert steps

    for trajectory_id, step in (("rs7g0.0-0", 7), ("rs9g1.2-0", 9)):
        status, out, err = agent_layer("store", "delete", trajectory_id, *(["--dry-run"] if dry_run else []))
        line = f"1 update of run {RUN} had learned from them: {step}; weights from step {step} on keep that"
        assert (status, line in out) == (0, step in steps), err


def test_updates_that_deleted_rollouts_taught_are_not_called_clean_in_silence(agent_layer, store, recall):
    plant_history(store, num_steps=4, groups=2)
    before = recall("--task", "t1")
    store.delete(before["updates"][0]["trajectory_ids"][0])

    after = recall("--task", "t1")

    assert after["runs"][0]["num_deleted"] == after["updates"][0]["num_deleted"] == 1
    assert after["updates"][0]["num_all_tokens"] == before["updates"][0]["num_all_tokens"]
    assert "1 rollout of them deleted since" in agent_layer("recall", "--task", "t1")[1]

    store.delete(task="t1")
    write_segment(store, *attempt("later.0-0", run=RUN, task_id="t1"))
    status, out, err = agent_layer("recall", "--task", "t1")
    assert (status, "no update learned from them" in out, "is clean" in out) == (0, True, False), err
    assert "rollouts that updates learned from were deleted since" in out
