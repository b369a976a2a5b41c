"""Trackers get each step's numbers and the way to its trajectories; none of their failures reaches the run.

torch and veRL take ten seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import json
import logging
import struct
import sys
from contextlib import contextmanager

import msgspec
import pytest

from agent_layer.errors import BadInputError
from agent_layer.health import HealthFinding, StepProgress
from trainer_adapter.config import TrainConfig

from .conftest import train

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other


@pytest.fixture
def offline_wandb(monkeypatch):
    """W&B without a network; it reads its environment once, so it is ended before and after."""
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb.teardown()
    yield wandb
    wandb.teardown()


def step(number, **fields):
    known = {
        "run": "r",
        "step": number,
        "policy_version": number + 3,
        "ended_at": 1.0,
        "num_rollouts": 8,
        "num_samples": 9,
        "num_calls": 10,
        "num_tokens": 11,
        "reward_mean": number / 2,
        "success": None,
        "staleness_max": 1,
        "untrainable": {"unreproducible:top_p": 2},
        "success_by_task": {"one of a million": 0.5},
        "metrics": {"actor/pg_loss": 0.25, "grad_norm": None},
    }
    return StepProgress(**known | fields)


@contextmanager
def opened(settings, *names):
    from trainer_adapter.verl import open_trackers

    config = TrainConfig(model=settings.dir, tasks=[], steps=2, trackers=list(names))
    (settings.dir / "runs" / "r").mkdir(parents=True)
    with open_trackers(config, settings, "r") as send:
        yield send


def read_tensorboard(directory):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(directory))
    found.Reload()
    scalars = {name: [(one.step, one.value) for one in found.Scalars(name)] for name in found.Tags()["scalars"]}
    notes = [found.tensors.Items(name) for name in found.Tags()["tensors"] if name.startswith("trajectories")]
    return scalars, [one.tensor_proto.string_val[0].decode() for one in notes[0]]


def test_a_tensorboard_file_holds_each_step_and_the_way_to_its_trajectories(settings):
    finding = HealthFinding(
        name="forks", level="warn", value=0.5, limit=0.3, since_step=1, sentence="too many forks", advice="Look."
    )
    with opened(settings, "tensorboard") as send:
        send(step(1))
        send(step(2, health=[finding]))

    scalars, notes = read_tensorboard(settings.dir / "runs" / "r" / "tensorboard")
    assert scalars["train/reward_mean"] == [(1, 0.5), (2, 1.0)]
    assert scalars["train/num_findings"] == [(1, 0), (2, 1)]
    assert scalars["update/actor/pg_loss"] == [(1, 0.25), (2, 0.25)]
    assert scalars["untrainable/unreproducible:top_p"] == [(1, 2), (2, 2)]
    assert not {"train/success", "update/grad_norm"} & set(scalars)  # not known, not finite
    assert not any("million" in name for name in scalars)
    assert "agent-layer query --run r --policy 2..3 --accepted" in notes[0]
    assert "agent-layer replay --run r --step 2" in notes[1]
    assert settings.objects_location in notes[1]
    assert "too many forks" in notes[1]


def test_wandb_keeps_each_step_without_a_network(settings, offline_wandb):
    with opened(settings, "wandb") as send:
        send(step(1))
        send(step(2))

    offline_wandb.teardown()  # its file is whole then
    rows = {row["_step"]: row for row in _history(settings)}
    assert rows[2]["train/reward_mean"] == 1.0
    assert "agent-layer query --run r" in rows[1]["trajectories"]


def _history(settings):
    from wandb.proto import wandb_internal_pb2

    (path,) = settings.dir.rglob("*.wandb")
    for content in _wandb_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        if record.WhichOneof("record_type") == "history":
            yield {one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in record.history.item}


def _wandb_records(content):
    """Read W&B's file: after seven bytes LevelDB's log, blocks of 32 KiB with parts (crc, length, kind) of records."""
    record, place = b"", 7
    while place < len(content):
        if (left := 32_768 - place % 32_768) < 7:
            place += left
            continue
        size, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        record += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield record
            record = b""


def test_mlflow_keeps_each_step(settings):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    with opened(settings, "mlflow") as send:
        send(step(1))
        send(step(2))
        run = mlflow.active_run().info.run_id

    client = mlflow.MlflowClient(f"sqlite:///{settings.dir.absolute()}/runs/mlflow.db")
    assert [one.value for one in client.get_metric_history(run, "train/reward_mean")] == [0.5, 1.0]
    assert [one.path for one in client.list_artifacts(run, "trajectories")] == [
        "trajectories/step-000001.md",
        "trajectories/step-000002.md",
    ]


def test_clearml_keeps_each_step_without_a_network(settings):
    clearml = pytest.importorskip("clearml", reason="ClearML is not installed")
    clearml.Task.set_offline(offline_mode=True)
    with opened(settings, "clearml") as send:
        send(step(1))
        send(step(2))
        session = clearml.Task.current_task().get_offline_mode_folder()

    command = (session / "metrics.jsonl").read_text()
    assert "reward_mean" in command


def test_a_tracker_that_does_not_open_stops_neither_the_run_nor_the_others(
    settings, offline_wandb, monkeypatch, caplog
):
    taken = settings.dir / "file"
    taken.parent.mkdir(parents=True, exist_ok=True)
    taken.write_text("no directory")
    monkeypatch.setenv("TENSORBOARD_DIR", str(taken / "tensorboard"))

    with caplog.at_level(logging.WARNING, "trainer_adapter"), opened(settings, "tensorboard", "wandb") as send:
        send(step(1))

    (spoken,) = [one.getMessage() for one in caplog.records if "tracker" in one.getMessage()]
    assert spoken.startswith("tracker tensorboard: ")
    assert spoken.endswith("the run goes on without it")
    offline_wandb.teardown()
    assert [row["_step"] for row in _history(settings)] == [1]


def test_a_tracker_that_fails_at_each_step_is_named_once(settings, offline_wandb, caplog):
    with caplog.at_level(logging.WARNING, "trainer_adapter"), opened(settings, "wandb", "tensorboard") as send:
        offline_wandb.finish()  # its run has ended, so it refuses what comes
        send(step(1))
        send(step(2))

    assert [one.getMessage()[:15] for one in caplog.records if "tracker" in one.getMessage()] == ["tracker wandb: "]
    scalars, _ = read_tensorboard(settings.dir / "runs" / "r" / "tensorboard")
    assert len(scalars["train/reward_mean"]) == 2


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_package_that_cannot_be_imported_is_refused_before_anything_starts(
    configure, settings, monkeypatch, tmp_path, is_broken
):
    if is_broken:
        (tmp_path / "clearml.py").write_text("import no_such_module")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "clearml", raising=False)
    else:
        monkeypatch.setitem(sys.modules, "clearml", None)
    config = msgspec.structs.replace(configure(steps=1), trackers=["tensorboard", "clearml"])

    with pytest.raises(BadInputError, match=r"package of clearml, found: .*; run 'pip install clearml'"):
        train(config, settings)

    assert not (settings.dir / "runs").exists()


@pytest.mark.usefixtures("player")
def test_the_steps_of_a_run_arrive(configure, settings):
    done = train(msgspec.structs.replace(configure(steps=2), trackers=["tensorboard"]), settings)

    scalars, notes = read_tensorboard(settings.dir / "runs" / "r" / "tensorboard")
    assert scalars["train/num_tokens"] == [(one.step, one.num_tokens) for one in done]
    assert scalars["update/grad_norm"] == [(one.step, pytest.approx(one.metrics["grad_norm"])) for one in done]
    assert len(notes) == 2
