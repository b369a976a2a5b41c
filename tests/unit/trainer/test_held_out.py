"""Held-out tasks are not drawn, and enter no batch: planted ones are left out by name, all others are trained."""

import random

import msgspec
import pytest

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.schema.contamination.held_out import HeldOutTasks, hold_out
from agent_layer.schema.rollout import Group
from agent_layer.schema.task import Task, hash_input
from agent_layer.settings import Settings
from agent_layer.store.consumers.follower import GroupDelivery
from envs.tasksets import open_taskset, read_holdout, write_task_line
from trainer_adapter.config import HeldOutConfig, SourceConfig, load_config, read_held_out_option
from trainer_adapter.data.groups import count_step, read_group
from trainer_adapter.tasks.held_out import open_held_out, read_held_out, read_left_out
from trainer_adapter.tasks.journal import DrawJournal
from trainer_adapter.tasks.mix import MixFile
from trainer_adapter.tasks.source import open_sources
from trainer_adapter.tasks.state import StreamState
from trainer_adapter.tasks.stream import TaskStream

from .test_intake import trajectory

TEXT = " ".join(f"word{number}" for number in range(60))


@pytest.fixture
def write(tmp_path):
    """``write(name, [task, …])``: a file of tasks."""

    def write(name, tasks):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in tasks))
        return path

    return write


@pytest.fixture
def settings(tmp_path):
    return Settings(dir=tmp_path)


@pytest.fixture
def begin(tmp_path, settings):
    """``begin(source, HeldOutConfig, …)``: the stream of a trainer that starts."""

    def begin(path, *configs, num_asked=0, state=None):
        source = SourceConfig(path=path)
        return TaskStream(
            open_sources([source], tmp_path / "tasks", run="r"),
            state or StreamState(),
            mix=MixFile(tmp_path / "mix.json"),
            journal=DrawJournal(tmp_path / "draws.jsonl", num_asked),
            held_out=open_held_out(configs, settings, "r"),
        )

    return begin


def draw(stream, positions):
    return [stream.draw(position, {}).task_id for position in positions]


PLANTS = {
    "input": lambda one: one | {"id": "renamed", "labels": {"new": "label"}, "grading": 1},
    "text": lambda one: one | {"id": "renamed", "input": {"q": one["input"].upper() + "."}, "seed": 5},
    "repository": lambda one: one | {"id": "renamed", "input": "something else"},
    "near": lambda one: one | {"id": "renamed", "input": one["input"] + " more", "labels": {}},
}


@pytest.mark.parametrize("seed", range(3))
def test_planted_tasks_are_never_drawn_and_all_others_are(write, begin, settings, seed):
    rng = random.Random(seed)
    held = [{"id": f"h{at}", "input": f"{at} {TEXT} {at}", "labels": {"repository": f"r/{at}"}} for at in range(4)]
    clean = [{"id": f"t{at}", "input": f"question {at}"} for at in range(20)]
    planted = [plant(one) | {"id": f"p-{level}"} for one, (level, plant) in zip(held, PLANTS.items(), strict=True)]
    tasks = [*clean, *planted]
    rng.shuffle(tasks)

    stream = begin(write("train", tasks), HeldOutConfig(path=write("held", held), holdout="near"))
    drawn = draw(stream, range(60))

    assert sorted(drawn) == sorted([one["id"] for one in clean] * 3)
    left_out = {one.task_id: (one.source, one.match.level, one.match.task_id) for one in read_left_out(settings, "r")}
    assert left_out == {f"p-{level}": ("train", level, f"h{at}") for at, level in enumerate(PLANTS)}
    assert len(read_left_out(settings, "r")) == 4


def test_near_duplicates_are_trained_unless_they_are_refused(write, begin):
    train, held = write("train", [{"id": "p", "input": f"{TEXT} more"}]), write("held", [{"id": "h", "input": TEXT}])

    assert draw(begin(train, HeldOutConfig(path=held)), range(2)) == ["p", "p"]
    with pytest.raises(BadInputError, match=r"source 'train': .* and 10,000 repeat held-out tasks"):
        begin(train, HeldOutConfig(path=held, holdout="near"), num_asked=2).draw(2, {})


def test_a_restart_leaves_out_the_same_and_names_them_once(write, begin, settings):
    tasks, held = [{"id": f"t{at}", "input": at} for at in range(6)], write("held", [{"input": 3}, {"input": 4}])
    path, config = write("train", tasks), HeldOutConfig(path=held)
    whole = draw(begin(path, config), range(20))
    begin(path, config).forget_draws()

    first = begin(path, config)
    parts = draw(first, range(7))
    second = begin(path, config, num_asked=7, state=first.state())
    parts += draw(second, range(7, 20))

    assert parts == whole
    assert set(whole) == {"t0", "t1", "t2", "t5"}
    assert sorted(one.task_id for one in read_left_out(settings, "r")) == ["t3", "t4"]
    assert [one.name for one in read_held_out(settings, "r")] == ["held"]


def test_a_run_whose_tasks_are_all_held_out_is_told_which_and_why(write, begin):
    tasks = [{"id": f"t{at}", "input": at} for at in range(3)]

    stream = begin(write("train", tasks), HeldOutConfig(path=write("copy", tasks)))
    with pytest.raises(BadInputError, match=r"such as t0, which has the input of held-out task t0 of copy.*hold out"):
        stream.draw(0, {})


@pytest.mark.parametrize("spelling", ["ABSOLUTE", "./t.jsonl", "sub/../t.jsonl", "link.jsonl"])
@pytest.mark.parametrize("section", ["held_out: [{path: %s}]", "evaluation: {tasks: [{path: %s}], every_steps: 1}"])
def test_the_file_that_is_trained_is_not_held_out_however_it_is_spelt(tmp_path, spelling, section):
    (tmp_path / "sub").mkdir()
    (tmp_path / "t.jsonl").touch()
    (tmp_path / "link.jsonl").symlink_to("t.jsonl")
    path = tmp_path / "run.yaml"
    spelt = tmp_path / "t.jsonl" if spelling == "ABSOLUTE" else spelling
    path.write_text(f"model: m\nsteps: 1\ntasks: t.jsonl\n{section % spelt}\n")

    with pytest.raises(BadInputError, match=r"t\.jsonl, which is trained; .*agent-layer eval"):
        load_config(path)


def test_a_damaged_record_of_what_is_held_out_is_not_passed_over(write, begin, settings):
    begin(write("train", [{"id": "t", "input": 1}]), HeldOutConfig(path=write("a", [{"input": 2}])))
    path = settings.dir / "runs" / "r" / "held_out.jsonl"

    path.write_bytes(path.read_bytes() + b'{"torn')
    assert [one.name for one in read_held_out(settings, "r")] == ["a"]
    path.write_bytes(b"damage\n" + path.read_bytes())
    with pytest.raises(CorruptRecordError, match=r"held_out\.jsonl"):
        read_held_out(settings, "r")


def test_what_earlier_starts_held_out_stays_recorded(write, begin, settings):
    train = write("train", [{"id": "t", "input": 1}])
    begin(train, HeldOutConfig(path=write("a", [{"input": 2}])))
    begin(train, HeldOutConfig(path=write("b", [{"input": 3}])))
    begin(train)

    assert [one.name for one in read_held_out(settings, "r")] == ["a", "b"]


def played(name, task, **fields):
    found = trajectory(name, **fields)
    started = msgspec.structs.replace(found.started, task=task, input_hash=hash_input(task))
    return msgspec.structs.replace(found, started=started)


def deliver(*trajectories):
    ids = [one.trajectory_id for one in trajectories]
    group = Group(group_id="g", run="r", task_id="t", closed_at=4.0, group_size=len(ids), trajectory_ids=ids)
    return GroupDelivery(group, list(trajectories), lambda: None)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_group_of_a_held_out_task_enters_no_batch_and_each_rollout_says_why(is_recorded):
    task = Task(id="t", run="r", input="secret")
    held_out = HeldOutTasks([hold_out("test", [msgspec.structs.replace(task, id="h")])])
    rollouts = [played("a", task), played("b", task, score=0.0)]
    if not is_recorded:
        rollouts = [
            msgspec.structs.replace(one, started=msgspec.structs.replace(one.started, task=None)) for one in rollouts
        ]

    group = read_group(deliver(*rollouts), 0, 1, held_out=held_out)

    assert (group.is_void, group.samples.rollouts, count_step([group]).untrainable) == (True, [], {"held_out": 2})
    assert [one.reason for one in group.excluded] == [
        f"trajectory {name}-0: its task has the input of held-out task h of test; held-out tasks are not trained"
        for name in "ab"
    ]
    assert not read_group(deliver(*rollouts), 0, 1).is_void
    other = [
        played(name, Task(id="t", run="r", input="other"), score=score) for name, score in (("a", 0.0), ("b", 1.0))
    ]
    assert not read_group(deliver(*other), 0, 1, held_out=held_out).is_void


def test_a_configuration_names_held_out_sets(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("model: m\nsteps: 1\ntasks: t.jsonl\nheld_out: h.jsonl\n")
    assert [one.path for one in load_config(path).held_out_sets] == [tmp_path / "h.jsonl"]

    path.write_text(
        "model: m\nsteps: 1\ntasks: t.jsonl\nevaluation: {tasks: e.jsonl, every_steps: 1}\n"
        "held_out: [{taskset: repair, holdout: near, repositories: [a/b]}]\n"
    )
    found = load_config(path).held_out_sets
    assert [(one.label, one.holdout, one.repositories) for one in found] == [
        ("e", None, []),
        ("repair", "near", ["a/b"]),
    ]

    path.write_text("model: m\nsteps: 1\ntasks: t.jsonl\nheld_out: t.jsonl\n")
    with pytest.raises(BadInputError, match=r"found t\.jsonl, which is trained"):
        load_config(path)


def test_a_task_set_declares_what_is_refused_and_its_files_keep_it(tmp_path, settings, monkeypatch):
    repair = open_taskset("repair")
    (task,) = repair.tasks(split="eval", count=1)
    assert (read_holdout(repair), "holdout" in msgspec.json.decode(write_task_line(task, repair))["labels"]) == (
        "exact",
        False,
    )

    monkeypatch.setattr(type(repair), "holdout", "near", raising=False)
    path = tmp_path / "held.jsonl"
    path.write_bytes(write_task_line(task, repair))
    for config in (HeldOutConfig(taskset="repair", count=2), HeldOutConfig(path=path)):
        assert [one.holdout for one in open_held_out([config], settings, "r").held_out.sets] == ["near"]

    monkeypatch.setattr(type(repair), "holdout", "all")
    with pytest.raises(BadInputError, match="task set 'repair': expected holdout exact or near, found 'all'"):
        read_holdout(repair)


@pytest.mark.parametrize("option", [5, ["a.jsonl"], [{"path": "a", "number": 1}], [{}]])
def test_held_out_sets_that_cannot_be_read_are_refused_with_an_example(option):
    with pytest.raises(BadInputError, match=r"held_out: expected a path, or sets .* \[\{taskset: repair"):
        read_held_out_option(option)
