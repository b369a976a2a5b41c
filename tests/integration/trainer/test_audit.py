"""Audit of a checkpoint: planted held-out tasks are found in every update of its lineage, and nothing else is."""

import random
from collections import Counter

import msgspec
import pytest

from agent_layer.schema.contamination.held_out import AuditVerdict, HeldOutTasks, hold_out
from agent_layer.schema.task import Task, hash_input
from agent_layer.schema.training import CheckpointRef, PolicyVersion, TrainedBatch, TrainedRollout
from agent_layer.store import open_store
from trainer_adapter.lineage import START_PLAN, START_STEPS, LearnedRow, StartStep, write_parent
from trainer_adapter.tasks.audit import audit_checkpoint

from ...builders import attempt
from ...stored import damage, lose_index, mark_deleted, write_segment

TEXT = " ".join(f"word{number}" for number in range(60))
HELD_OUT = [Task(id=f"h{at}", run="e", split="eval", input=f"{at} {TEXT}") for at in range(3)]


@pytest.fixture
def store(settings):
    return open_store(settings)


@pytest.fixture
def held_out(tmp_path):
    """The file of the held-out tasks."""
    path = tmp_path / "held-out.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode({"id": one.id, "input": one.input}) + b"\n" for one in HELD_OUT))
    return path


def train(run, step, *tasks, sizes=(3, 4), has_task=True, has_hash=None):
    """Records of an update that learned from a group of each task."""
    records, rollouts = [], []
    for task in tasks:
        group_id = f"{task.id}.{run}{step}"
        for at, size in enumerate(sizes):
            trajectory_id = f"{group_id}.{at}-0"
            known = {"task": task} if has_task else {}
            known |= {"input_hash": hash_input(task)} if has_task or has_hash else {}
            records += attempt(trajectory_id, run=run, group_id=group_id, score=at, task_id=task.id, **known)
            own = {"reward": float(at), "reward_ids": [], "samples_hash": "s", "num_tokens": size}
            rollouts.append(TrainedRollout(trajectory_id=trajectory_id, group_id=group_id, **own))
    total = sum(one.num_tokens for one in rollouts)
    own = {"batch_id": f"{run}/{step}", "policy_version": step - 1, "batch_hash": "h", "num_samples": len(rollouts)}
    batch = TrainedBatch(run=run, step=step, trained_at=float(step), rollouts=rollouts, num_tokens=total, **own)
    return [*records, batch]


def begin(run, *parent):
    origin = CheckpointRef(run=parent[0], step=parent[1]) if parent else None
    return PolicyVersion(run=run, number=0, location="base", created_at=0.0, parent=origin)


def warm_up(settings, run, *steps, parent=None):
    """Write what a warm start keeps of its steps: rows (trajectory id, group id, number of tokens)."""
    directory = settings.dir / "runs" / run
    directory.mkdir(parents=True)
    names = ("trajectory_id", "group_id", "num_tokens")
    rows = [[LearnedRow(**dict(zip(names, row, strict=True))) for row in step] for step in steps]
    lines = [msgspec.json.encode(StartStep(step=at, rows=step)) + b"\n" for at, step in enumerate(rows, 1)]
    (directory / START_STEPS).write_bytes(b"".join(lines) + b'{"step":9,"ro')  # a kill tore the last one
    (directory / START_PLAN).write_bytes(msgspec.json.encode({"method": "sft", "parent": parent}))


def clean(number):
    return Task(id=f"t{number}", run="r", input=f"question {number}")


@pytest.mark.parametrize("seed", range(2))
def test_every_planted_task_is_found_with_its_updates_and_tokens_and_no_other(store, tmp_path, seed):
    rng = random.Random(seed)
    planted = {
        "input": msgspec.structs.replace(HELD_OUT[0], id="p0", split="train"),
        "text": Task(id="p1", run="r", input={"question": HELD_OUT[1].input.upper()}),
        "near": Task(id="p2", run="r", input=f"{HELD_OUT[2].input} more"),
    }
    updates, rollouts, tokens = {}, Counter(), Counter()
    write_segment(store, begin("a"), begin("b", "a", 3))
    for run, steps in (("a", range(1, 6)), ("b", range(4, 7))):
        for step in steps:
            tasks = [clean(rng.randrange(9)), *(one for one in planted.values() if rng.random() < 0.6)]
            tasks = list({one.id: one for one in tasks}.values())
            sizes = rng.choices(range(1, 50), k=3)
            write_segment(store, *train(run, step, *tasks, sizes=sizes))
            if run == "b" or step <= 3:
                for one in tasks:
                    updates.setdefault(one.id, []).insert(0, CheckpointRef(run=run, step=step))
                    rollouts[one.id] += 3
                    tokens[one.id] += sum(sizes)

    def check():
        held_out = HeldOutTasks([hold_out("test", HELD_OUT)])
        found = audit_checkpoint(store, CheckpointRef(run="b", step=6), held_out, tmp_path)

        assert {one.task_id: one.match.level for one in found.learned} == {
            one.id: level for level, one in planted.items() if level != "near" and one.id in updates
        }
        assert [(one.task_id, one.match.level, one.match.is_refused) for one in found.near] == [("p2", "near", False)]
        for one in (*found.learned, *found.near):
            assert one.updates == updates[one.task_id]
            assert (one.num_rollouts, one.num_tokens) == (rollouts[one.task_id], tokens[one.task_id])
        assert (found.num_updates, found.num_tasks, found.num_tokens) == (6, len(updates), tokens.total())
        assert (found.num_deleted, found.num_unknown) == (0, 0)

    check()
    lose_index(store)
    store.admin.reindex()
    check()


def test_the_command_proves_a_clean_lineage(store, held_out, agent_layer, tmp_path):
    write_segment(store, begin("r"), *train("r", 1, clean(1), clean(2)), *train("r", 2, clean(1)))
    model = tmp_path / "model"
    model.mkdir()
    write_parent(model, CheckpointRef(run="r", step=2))

    for where in (["2", "--run", "r"], [model]):
        status, out, _ = agent_layer("checkpoint", "audit", *where, "--held-out", held_out)

        assert status == 0
        assert "2 updates, 3 groups of 2 tasks, 21 trained tokens; 3 held-out tasks" in out
        assert "learned from held-out tasks: 0\n" in out
        assert "proven: no held-out task was learned" in out


def test_the_command_lists_what_was_learned_and_its_share(store, settings, held_out, agent_layer):
    write_segment(store, begin("r"), *train("r", 1, clean(1), HELD_OUT[0]), *train("r", 2, HELD_OUT[0], clean(2)))

    status, out, _ = agent_layer("checkpoint", "audit", 2, "--run", "r", "--held-out", held_out)

    assert status == 1
    assert "learned from held-out tasks: 1 (50.00% of all trained tokens)" in out
    assert "h0 has the input of held-out task h0 of held-out: 4 rollouts, 14 tokens, updates r/2, r/1" in out
    assert "not proven" in out
    verdict = msgspec.json.decode((settings.dir / "runs" / "r" / "audit.json").read_bytes(), type=AuditVerdict)
    assert (verdict.step, verdict.is_proven, verdict.num_held_out) == (2, False, 3)
    assert (verdict.num_learned, verdict.learned_share) == (1, 0.5)


def test_deleted_and_unrecorded_rollouts_are_no_proof(store, held_out, agent_layer):
    def audit():
        status, out, _ = agent_layer("checkpoint", "audit", 1, "--run", "r", "--held-out", held_out, "--format", "json")
        found = msgspec.json.decode(out)
        return status, found["num_deleted"], found["num_unknown"]

    write_segment(store, begin("r"), *train("r", 1, clean(1), clean(2)))
    damage(store, "t1.r1.0-0")
    assert audit() == (0, 0, 0)  # another rollout of its group has the task
    damage(store, "t1.r1.1-0")
    assert audit() == (1, 0, 1)
    mark_deleted(store, "t1.r1.0-0", "t1.r1.1-0", "t2.r1.0-0")
    assert audit() == (1, 3, 0)


def test_a_repository_is_found_though_the_same_input_was_trained_without_its_label(store, tmp_path):
    labelled = msgspec.structs.replace(clean(1), labels={"repository": "a/b"})
    write_segment(store, begin("r"), *train("r", 1, clean(1)), *train("r", 2, labelled), *train("r", 3, clean(1)))

    held_out = HeldOutTasks([hold_out("swe", [], repositories=["a/b"])])
    found = audit_checkpoint(store, CheckpointRef(run="r", step=3), held_out, tmp_path)

    assert [one.updates for one in found.learned] == [[CheckpointRef(run="r", step=2)]]


def test_a_held_out_input_is_found_by_its_hash_alone(store, held_out, agent_layer):
    write_segment(store, begin("r"), *train("r", 1, HELD_OUT[0], has_task=False, has_hash=True))

    status, out, _ = agent_layer("checkpoint", "audit", 1, "--run", "r", "--held-out", held_out)

    assert status == 1
    assert "h0 has the input of held-out task h0 of held-out" in out


@pytest.mark.parametrize("has_hash", [False, True])
def test_tasks_that_were_never_recorded_are_no_proof(store, held_out, agent_layer, has_hash):
    write_segment(store, begin("r"), *train("r", 1, clean(1), has_task=False, has_hash=has_hash))

    status, out, _ = agent_layer("checkpoint", "audit", 1, "--run", "r", "--held-out", held_out)

    assert status == 1
    assert "cannot be compared: 0 deleted rollouts, 1 groups whose task is not recorded" in out


@pytest.mark.parametrize("seed", range(2))
def test_what_a_warm_start_learned_is_part_of_the_lineage(store, settings, seed):
    """Run c begins with a warm start, which began with step 1 of run a."""
    rng = random.Random(seed)
    tasks = [*(clean(number) for number in range(6)), *HELD_OUT[:2]]
    write_segment(store, begin("a"), *train("a", 1, clean(7)), *train("a", 2, HELD_OUT[2]))
    for task in tasks:
        write_segment(store, *train("old", 1, task))
    rows = [
        (f"{one.id}.old1.{at}-0", f"{one.id}.old1" if at else None, rng.randint(1, 9)) for one in tasks for at in (0, 1)
    ]
    steps = [rng.sample(rows, 4) for _ in range(5)]
    warm_up(settings, "warm.sft", *steps, parent=CheckpointRef(run="a", step=1))
    write_segment(store, begin("c", "warm.sft", 3), *train("c", 1, clean(8)))

    for where, num_own in ((CheckpointRef(run="c", step=1), 1), (CheckpointRef(run="warm.sft", step=3), 0)):
        found = audit_checkpoint(store, where, HeldOutTasks([hold_out("test", HELD_OUT)]), settings.dir / "runs")

        expected = {}
        for at, step in reversed(list(enumerate(steps[:3], 1))):
            for name, _, size in step:
                updates, tokens = expected.setdefault(name.split(".")[0], ([], []))
                updates.append(CheckpointRef(run="warm.sft", step=at))
                tokens.append(size)
        assert {
            one.task_id: (set(map(str, one.updates)), one.num_rollouts, one.num_tokens) for one in found.learned
        } == {
            name: (set(map(str, updates)), len(tokens), sum(tokens))
            for name, (updates, tokens) in expected.items()
            if name.startswith("h")
        }
        assert (found.num_updates, found.num_unknown, found.unrecorded) == (4 + num_own, 0, [])


def test_a_warm_start_that_cannot_be_compared_is_no_proof(store, settings, held_out, agent_layer):
    def audit():
        return agent_layer("checkpoint", "audit", 1, "--run", "c", "--held-out", held_out)

    write_segment(store, *train("old", 1, clean(1)), begin("c", "warm.sft", 2), *train("c", 1, clean(2)))
    status, out, _ = audit()
    assert status == 1
    assert "not recorded here: what led to step 2 of run warm.sft" in out

    warm_up(settings, "warm.sft", [("t1.old1.0-0", None, 3)], [(None, None, 3), (None, None, 4)])
    status, out, _ = audit()
    assert status == 1
    assert "cannot be compared: 0 deleted rollouts, 1 groups whose task is not recorded" in out

    steps = settings.dir / "runs" / "warm.sft" / START_STEPS
    whole = steps.read_bytes().splitlines(keepends=True)
    steps.write_bytes(whole[0] + whole[0].replace(b":1", b":2"))
    assert audit()[0] == 0
    steps.write_bytes(whole[0] + b'{"step":2,"num_steps":2}\n')  # of an earlier release
    assert "cannot be compared: 0 deleted rollouts, 1 groups" in audit()[1]
    steps.write_bytes(whole[0] + b"{damaged\n")
    status, _, err = audit()
    assert status != 0
    assert "restore the file" in err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["1", "--run", "r"], "run r recorded none here"),
        (["7", "--run", "other", "--held-out", "FILE"], "step 7 of run other: expected the record of an update"),
        (["7", "--run", "../r", "--held-out", "FILE"], "run '../r'"),
        (["9" * 5000, "--held-out", "FILE"], "expected a step, or the directory"),
        (["nowhere", "--held-out", "FILE"], "checkpoint 'nowhere': expected a step, or the directory"),
        (["1", "--held-out", "no-such-set"], "no-such-set"),
    ],
)
def test_what_cannot_be_audited_is_refused(held_out, agent_layer, arguments, named):
    arguments = [str(held_out) if one == "FILE" else one for one in arguments]

    status, _, err = agent_layer("checkpoint", "audit", *arguments)

    assert status == 2
    assert named in " ".join(err.split())
