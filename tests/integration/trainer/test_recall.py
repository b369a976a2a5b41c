"""Recall finds all that learned from a fault: equal to a count of the raw records, which shares no code with it."""

import json
from collections import defaultdict

import msgspec
import pytest

from agent_layer.schema.reward import Reward
from agent_layer.store import open_store
from trainer_adapter.loop.checkpoint import CheckpointDirectory, Cursor

from ...planted import BAD, SCORER, WRONG_STEPS, branch, plant_history
from ...stored import lose_index, stored_records, write_segment

RUN = "r"


@pytest.fixture
def store(settings):
    return open_store(settings)


@pytest.fixture
def recall(agent_layer, store):
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


@pytest.mark.parametrize("seed", range(3))
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
        assert (
            of_run["clean"]
            == {"run": RUN, "step": min(expected) - 1, "schema_version": of_run["clean"].get("schema_version")}
            or of_run["clean"]["step"] == min(expected) - 1
        )

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
def test_other_conditions_recall_whole_trajectories(store, recall, options, matches, agent_layer, ship_here):
    plant_history(store, num_steps=12, groups=2)
    for member in range(4):
        store.label(f"rs7g0.{member}-0", "bad", "yes")
    ship_here()

    assert answered(recall(*options)) == Raw(store).taught(RUN, matches)
