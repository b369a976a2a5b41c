"""Commands over checkpoints: what is there, and clear refusals. No torch is needed before an export reads weights."""

import pytest

from trainer_adapter.loop.checkpoint import CheckpointDirectory, Cursor


@pytest.fixture
def checkpoints(settings):
    checkpoints = CheckpointDirectory(settings, "r")
    for step in (9, 12):
        checkpoints.save(
            Cursor(step=step, policy_version=step + 1), lambda directory: (directory / "w").write_text("w")
        )
    return checkpoints


@pytest.mark.usefixtures("checkpoints")
def test_checkpoints_of_a_run_are_listed(agent_layer):
    status, out, _ = agent_layer("checkpoint", "list", "--run", "r")

    assert status == 0
    assert [line.split()[:2] for line in out.splitlines()] == [["step", "version"], ["9", "10"], ["12", "13"]]


@pytest.mark.usefixtures("checkpoints")
def test_a_step_without_a_checkpoint_names_those_with_one(agent_layer, tmp_path):
    status, _, err = agent_layer("checkpoint", "export", "10", tmp_path / "hf", "--run", "r")

    assert status == 2
    assert "step 10 of run r" in err
    assert "9, 12" in err


def test_a_run_without_checkpoints_says_where_it_looked(agent_layer, settings, tmp_path):
    status, _, err = agent_layer("checkpoint", "export", "10", tmp_path / "hf", "--run", "other")

    assert status == 2
    assert str(settings.dir / "checkpoints" / "other") in err.replace("\n", "")


@pytest.mark.usefixtures("checkpoints")
def test_an_export_never_writes_over_files(agent_layer, tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "mine").write_text("mine")

    status, _, err = agent_layer("checkpoint", "export", "9", tmp_path / "hf", "--run", "r")

    assert status == 2
    assert "expected a new or empty directory" in err
    assert [path.name for path in (tmp_path / "hf").iterdir()] == ["mine"]
