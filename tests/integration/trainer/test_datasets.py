"""``store export sft | pairs | steps | hf | verl --groups``: rows of the store, or the reason why not."""

import json
import random
import signal
from collections import Counter

import msgspec
import pyarrow.parquet
import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema.step import StepState
from agent_layer.store import open_store
from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.data import samples_of, select_batch, spread_advantages
from trainer_adapter.datasets.directory import RowFiles, write_dataset
from trainer_adapter.datasets.rows import pair_rows
from trainer_adapter.datasets.selection import Account, SelectionRule, read_usable

from ...builders import attempt, closed_group, content
from ...job.hand_case import GROUPS, plain, read_groups, record_call, with_a_fork, with_a_tool
from ...stored import damage, mark_deleted, write_segment


@pytest.fixture
def store(settings):
    return open_store(settings)


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch, tmp_path):
    from datasets.utils.logging import disable_progress_bar  # noqa: PLC0415  # it takes a second

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    disable_progress_bar()


def read(directory, kind):
    from datasets import load_dataset  # noqa: PLC0415

    return load_dataset(str(directory), kind, split="train", cache_dir=str(directory.parent / "cache")).to_list()


def put_group(store, group_id, *members, **fields):
    """Store a closed group of (score, calls) or (score, calls, fields of the attempt)."""
    names = [f"{group_id}.{number}-0" for number in range(len(members))]
    for name, (score, calls, *more) in zip(names, members, strict=True):
        write_segment(store, *attempt(name, *calls(name), score=score, group_id=group_id, **dict(*more)))
    write_segment(store, closed_group(group_id, *names, group_size=len(names), **fields))
    return names


def answer(*ids, **fields):
    return lambda name: [record_call(name, "a", list(ids), **fields)]


def test_rows_to_imitate_have_the_ids_masks_and_log_probabilities_of_the_store(store, agent_layer, tmp_path):
    put_group(store, "g", (1.0, with_a_tool), (0.0, with_a_fork))

    status, out, _ = agent_layer("store", "export", "sft", tmp_path / "d", "--mixed-versions")

    assert (status, out) == (0, f"3 rows of sft from 2 trajectories in {tmp_path / 'd'}\n")
    samples = {one.sample_id: one for name in ("g.0-0", "g.1-0") for one in samples_of(store.get(name)).samples}
    rows = read(tmp_path / "d", "sft")
    assert len(rows) == len(samples) == 3
    for row in rows:
        sample = samples[f"{row['trajectory_id']}.{row['row']}"]
        skipped = len(sample.prompt_ids)
        assert row["input_ids"] == [*sample.prompt_ids, *sample.response_ids]
        assert row["assistant_masks"] == [0] * skipped + list(sample.loss_mask)
        assert row["logprobs"] == pytest.approx([0.0] * skipped + list(sample.logprobs))
        assert row["versions"] == [-1] * skipped + list(sample.versions)
        assert (row["num_rows"], row["reward"]) == ((1, 1.0) if row["trajectory_id"] == "g.0-0" else (2, 0.0))


def test_the_conversation_stands_beside_the_ids(store, agent_layer, tmp_path):
    question = content("x.0-0", b'{"role":"user","content":"what"}')
    (start,) = plain("x.0-0")
    message = {"role": "assistant", "content": "that"}
    actions = [msgspec.structs.replace(start.actions[0], message=message)]
    call = msgspec.structs.replace(start, actions=actions, state=StepState(messages=[question.hash]))
    write_segment(store, *attempt("x.0-0", question, call, score=1.0))

    agent_layer("store", "export", "sft", tmp_path / "d")

    (row,) = read(tmp_path / "d", "sft")
    assert json.loads(row["messages"]) == [{"role": "user", "content": "what"}, message]


REFUSED = {
    "unfinished": (answer(3), {"status": "running"}),
    "not_accepted": (answer(3), {"status": "cancelled"}),
    "cut_short": (answer(3, finish_reason="length"), {}),
    "not_train": (answer(3), {"split": "eval"}),
    "greedy": (answer(3, temperature=0.0), {}),
    "mixed_versions": (with_a_tool, {}),
    "no_tokens": (answer(3, status="aborted"), {}),
    "no_reward": (answer(3), {"score": None}),
}


def test_each_trajectory_that_may_not_be_used_is_left_out_by_name(store, agent_layer, tmp_path):
    for kind, (calls, fields) in REFUSED.items():
        own = {"score": 1.0, "group_id": "g"} | fields
        write_segment(store, *attempt(f"{kind.replace('_', '.')}-0", *calls(f"{kind.replace('_', '.')}-0"), **own))
    write_segment(store, *attempt("good-0", *plain("good-0"), score=0.5, group_id="g"))
    write_segment(store, *attempt("gone-0", *plain("gone-0"), score=1.0, group_id="g"))
    mark_deleted(store, "gone-0")

    status, _, err = agent_layer("store", "export", "sft", tmp_path / "d", "--best-of", "9")

    assert status == 0
    assert Counter(one.split()[1] for one in err.removeprefix("left out: ").split(", ")) == Counter(REFUSED.keys())
    assert [row["trajectory_id"] for row in read(tmp_path / "d", "sft")] == ["good-0"]
    card = (tmp_path / "d" / "README.md").read_text()
    assert all(f"| {kind} | 1 | trajectory " in card for kind in REFUSED)


def test_a_reward_alone_selects_and_so_does_best_of_n(store, agent_layer, tmp_path):
    dice = random.Random(5)
    rewards = {}
    for number in range(12):
        scores = [dice.choice([0.0, 0.5, 1.0, None]) for _ in range(6)]
        names = put_group(store, f"g{number}", *((score, plain) for score in scores))
        rewards |= {name: (f"g{number}", score) for name, score in zip(names, scores, strict=True)}

    agent_layer("store", "export", "sft", tmp_path / "rejected", "--reward", "0.5..")
    agent_layer("store", "export", "sft", tmp_path / "best", "--best-of", "2")

    above = {name for name, (_, score) in rewards.items() if score is not None and score >= 0.5}
    assert {row["trajectory_id"] for row in read(tmp_path / "rejected", "sft")} == above
    best = read(tmp_path / "best", "sft")
    for group in {group for group, _ in rewards.values()}:
        known = sorted((s for g, s in rewards.values() if g == group and s is not None), reverse=True)
        assert [row["reward"] for row in best if row["group_id"] == group] == known[:2]


def test_pairs_are_of_one_group_and_prompt_the_widest_first(store, agent_layer, tmp_path):
    other = lambda name: [record_call(name, "a", [13], delta=(4, 12))]  # noqa: E731  # a prompt of its own
    members = [
        (1.0, answer(13)),
        (0.0, answer(14)),
        (0.4, answer(15)),
        (1.0, answer(16)),
        (-9.0, other),
        (-9.0, with_a_fork),
    ]
    put_group(store, "g", *members)
    put_group(store, "h", (5.0, answer(17)), (5.0, answer(18)))

    agent_layer("store", "export", "pairs", tmp_path / "one")
    agent_layer("store", "export", "pairs", tmp_path / "more", "--per-group", "9", "--margin", "0.5")

    (row,) = read(tmp_path / "one", "pairs")
    assert (row["chosen_trajectory_id"], row["rejected_trajectory_id"], row["margin"]) == ("g.0-0", "g.1-0", 1.0)
    assert (row["prompt_ids"], row["chosen_ids"], row["rejected_ids"]) == ([3, 12], [13], [14])
    assert row["chosen_logprobs"] == pytest.approx(list(samples_of(store.get("g.0-0")).samples[0].logprobs))
    found = [(one["chosen_ids"], one["rejected_ids"], one["margin"]) for one in read(tmp_path / "more", "pairs")]
    assert found == [([13], [14], 1.0), ([16], [14], 1.0), ([13], [15], 0.6), ([16], [15], 0.6)]
    assert "| several_rows | 1 |" in (tmp_path / "one" / "README.md").read_text()


@pytest.mark.parametrize(
    ("rewards", "margin", "is_pair"),
    [
        ((0.3, 0.1), 0.2, True),  # 0.3 - 0.1 is 0.19999999999999998
        ((1 - 0.9, 0.0), 0.1, True),
        ((0.1 + 0.2, 0.1), 0.2, True),
        ((-0.1, -0.3), 0.2, True),
        ((1e6 + 0.3, 1e6 + 0.1), 0.2, True),
        ((0.2999, 0.1), 0.2, False),
        ((0.1 + 0.2, 0.3), 0.0, False),  # equal, but for 5e-17
        ((1e-9, 0.0), 0.0, True),
    ],
)
def test_a_margin_is_exact_but_for_the_rounding_of_rewards(store, rewards, margin, is_pair):
    put_group(store, "g", *((reward, answer(13 + number)) for number, reward in enumerate(rewards)))
    (rollouts,) = read_usable(store, {}, SelectionRule(needs_reward=True), Account())

    assert len(list(pair_rows(rollouts, margin, 1, Account()))) == is_pair


@pytest.mark.parametrize("per_group", [1, 2, 5, 99])
def test_pairs_are_the_widest_of_all_whatever_their_number(store, agent_layer, tmp_path, per_group):
    dice = random.Random(per_group)
    members = [
        (dice.choice([0.0, 0.25, 0.5, 1.0]), answer(13 + number, delta=(3, 12 + dice.randrange(2))))
        for number in range(11)
    ]
    names = put_group(store, "g", *members)

    agent_layer("store", "export", "pairs", tmp_path / "d", "--per-group", per_group)

    samples = [(score, *samples_of(store.get(name)).samples) for name, (score, _) in zip(names, members, strict=True)]
    expected = sorted(
        (bad - good, chosen.trajectory_id, rejected.trajectory_id)
        for good, chosen in samples
        for bad, rejected in samples
        if good > bad and chosen.prompt_ids == rejected.prompt_ids
    )[:per_group]
    found = [
        (-row["margin"], row["chosen_trajectory_id"], row["rejected_trajectory_id"])
        for row in read(tmp_path / "d", "pairs")
    ]
    assert found == expected


def test_steps_are_those_of_the_store_each_once(store, agent_layer, tmp_path):
    put_group(store, "g", (1.0, with_a_tool), (0.0, with_a_fork))

    agent_layer("store", "export", "steps", tmp_path / "d", "--mixed-versions", "--format", "jsonl")

    stored = {(one, step.index): step for one in ("g.0-0", "g.1-0") for step in store.get(one).steps}
    rows = {(row["trajectory_id"], row["step"]): row for row in read(tmp_path / "d", "steps")}
    assert rows.keys() == stored.keys()
    for key, row in rows.items():
        assert row["prompt_ids"] == list(stored[key].prompt_token_ids)
        assert row["response_ids"] == list(stored[key].action.response_token_ids)
        assert row["logprobs"] == pytest.approx(list(stored[key].action.logprobs))
        assert (row["step_reward"], row["rollout_reward"]) == (None, float(key[0] == "g.0-0"))


def test_one_dataset_of_all_kinds_names_its_source(store, agent_layer, tmp_path):
    put_group(store, "g", (1.0, answer(13, version=3)), (0.0, answer(14, version=3)))

    status, _, _ = agent_layer("store", "export", "hf", tmp_path / "d", "--run", "r")

    assert status == 0
    assert [len(read(tmp_path / "d", kind)) for kind in ("sft", "pairs", "steps")] == [2, 1, 2]
    card = (tmp_path / "d" / "README.md").read_text()
    head = msgspec.yaml.decode(card.split("---")[1])
    assert [one["splits"][0]["num_examples"] for one in head["dataset_info"]] == [2, 1, 2]
    assert '| filters | `{"run":"r"}` |' in card
    assert "| policy versions | 3 to 3 |" in card


def test_batches_are_those_that_the_trainer_learns_from(store, agent_layer, tmp_path):
    for number, (group_id, members) in enumerate(GROUPS.items()):
        put_group(store, group_id, *members, closed_at=9.0 + number)
    file = tmp_path / "b.parquet"

    status, out, _ = agent_layer(
        "store", "export", "verl", file, "--groups", "3", "--algorithm", "rloo", "--reward", "..99"
    )

    assert status == 0, out
    rows = pyarrow.parquet.read_table(file).to_pylist()
    algorithm = resolve_algorithm(AlgorithmConfig(name="rloo"))
    samples = [one.samples for one in read_groups()]
    batches = [select_batch(part, keep_equal=False) for part in (samples[:3], samples[3:])]
    expected = [
        {
            "batch": number,
            "rollout": owner,
            "uid": batch.group_ids[owner],
            "reward": batch.rewards[owner],
            "trajectory_id": sample.trajectory_id,
            "data_source": "default",
            "temperature": sample.temperature,
            "prompts": list(sample.prompt_ids),
            "responses": list(sample.response_ids),
            "response_mask": list(sample.loss_mask),
            "versions": list(sample.versions),
            "rollout_log_probs": pytest.approx(list(sample.logprobs)),
            "advantages": pytest.approx(advantages),
        }
        for number, batch in enumerate(batches)
        for owner, sample, advantages in zip(
            batch.rollout_of, batch.samples, spread_advantages(batch, algorithm), strict=True
        )
    ]
    assert rows == expected
    assert len(rows) > 5


@pytest.mark.parametrize("per_batch", [1, 10**30])
def test_a_group_is_written_whole_whichever_member_a_filter_finds(store, agent_layer, tmp_path, per_batch):
    put_group(store, "g", (1.0, answer(13)), (0.0, answer(14)))

    agent_layer("store", "export", "verl", tmp_path / "b.parquet", "--groups", per_batch, "--reward", "1..")

    rows = pyarrow.parquet.read_table(tmp_path / "b.parquet").to_pylist()
    assert [row["reward"] for row in rows] == [1.0, 0.0]


def test_members_that_cannot_be_read_are_left_out_of_their_batch_by_name(store, agent_layer, tmp_path):
    names = put_group(store, "g", *((float(score), answer(13 + score)) for score in range(5)))
    mark_deleted(store, names[1])
    damage(store, names[2])

    status, _, err = agent_layer("store", "export", "verl", tmp_path / "b.parquet", "--groups", "1")

    assert (status, err) == (1, "left out: 1 deleted, 1 unreadable\n")
    rows = pyarrow.parquet.read_table(tmp_path / "b.parquet").to_pylist()
    assert [row["reward"] for row in rows] == [0.0, 3.0, 4.0]


def test_the_card_describes_what_is_written_alone(store, agent_layer, tmp_path):
    put_group(store, "g", *((score, answer(13, version=version)) for version, score in enumerate([0.0, 1.0, 0.0, 0.5])))

    agent_layer("store", "export", "sft", tmp_path / "best", "--best-of", "1")
    agent_layer("store", "export", "pairs", tmp_path / "pairs")

    assert "| policy versions | 1 to 1 |" in (tmp_path / "best" / "README.md").read_text()
    assert "| policy versions | 0 to 1 |" in (tmp_path / "pairs" / "README.md").read_text()


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_column_that_begins_with_nulls_is_read(store, agent_layer, tmp_path, monkeypatch, form):
    monkeypatch.setattr("trainer_adapter.datasets.directory._PART_ROWS", 1)
    monkeypatch.setattr("trainer_adapter.datasets.directory._BATCH", 1)
    put_group(store, "g", (None, plain), (1.0, plain))

    agent_layer("store", "export", "sft", tmp_path / "d", "--format", form)

    assert [row["reward"] for row in read(tmp_path / "d", "sft")] == [None, 1.0]


def test_two_exports_to_one_directory_harm_neither_each_other_nor_what_stands_beside(tmp_path):
    directory = tmp_path / "d"
    (tmp_path / "d.pending").mkdir()
    (tmp_path / "d.pending" / "file").write_text("kept")

    def export(name, between=lambda: None):
        with write_dataset(directory, ["sft"], "parquet", Account(), {}) as files:
            files["sft"].append({"trajectory_id": name})
            between()

    with pytest.raises(BadInputError, match="expected a place that can be written to, found Directory not empty"):
        export("first", lambda: export("second"))

    assert [row["trajectory_id"] for row in read(directory, "sft")] == ["second"]
    assert sorted(one.name for one in tmp_path.iterdir() if one.name != "cache") == ["d", "d.pending"]
    assert (tmp_path / "d.pending" / "file").read_text() == "kept"


def test_a_link_to_an_empty_directory_is_followed_and_the_present_one_is_refused(
    store, agent_layer, tmp_path, monkeypatch
):
    put_group(store, "g", (1.0, plain))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "real")

    for place in (".", "", "/"):
        status, _, err = agent_layer("store", "export", "sft", place)
        assert (status, err.count("expected a new or empty directory")) == (2, 1), err

    monkeypatch.chdir(tmp_path)
    assert agent_layer("store", "export", "sft", "link")[0] == 0
    assert (tmp_path / "real" / "README.md").is_file()


def test_a_termination_ends_an_export_without_a_trace(store, agent_layer, tmp_path, monkeypatch):
    put_group(store, "g", (1.0, plain))
    monkeypatch.setattr(RowFiles, "append", lambda *_: signal.raise_signal(signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("the command left the signal as it was"))

    try:
        status, _, _ = agent_layer("store", "export", "sft", tmp_path / "d")
    finally:
        signal.signal(signal.SIGTERM, before)

    assert status == 130
    assert [one.name for one in tmp_path.iterdir()] == ["agent-layer"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("sft", "full"), "expected a new or empty directory"),
        (("sft", "new", "--run", "none"), "no filter matches"),
        (("pairs", "new"), "expected a row, found none in 1 trajectories (1 no_pair)"),
        (("verl", "f.parquet", "--algorithm", "rloo"), "--algorithm rloo is for --groups"),
        (("verl", "f.parquet", "--groups", "2", "--algorithm", "ppo"), "expected one of"),
        (("verl", "f.parquet", "--groups", "2", "--run", "none"), "expected closed groups"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_leaves_nothing(store, agent_layer, tmp_path, arguments, sentence):
    write_segment(store, *attempt("x.0-0", *plain("x.0-0"), score=1.0))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("kept")
    kind, place, *options = arguments

    status, _, err = agent_layer("store", "export", kind, tmp_path / place, *options)

    assert (status, err.count(sentence)) == (2, 1), err
    assert not (tmp_path / "new").exists()
    assert {one.name for one in tmp_path.iterdir()} <= {"full", "cache", "agent-layer"}
    assert (tmp_path / "full" / "file").read_text() == "kept"


def test_large_datasets_are_several_files_that_read_as_one(store, agent_layer, tmp_path, monkeypatch):
    monkeypatch.setattr("trainer_adapter.datasets.directory._PART_ROWS", 2)
    monkeypatch.setattr("trainer_adapter.datasets.directory._BATCH", 2)
    names = {name for n in range(3) for name in put_group(store, f"g{n}", *[(1.0, plain)] * 3)}

    for form in ("parquet", "jsonl"):
        agent_layer("store", "export", "sft", tmp_path / form, "--format", form)

    for form in ("parquet", "jsonl"):
        assert len(list((tmp_path / form / "sft").iterdir())) == 5
        assert {row["trajectory_id"] for row in read(tmp_path / form, "sft")} == names
