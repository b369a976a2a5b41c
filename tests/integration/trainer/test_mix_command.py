"""``agent-layer mix``: a user sees the weights of a run, changes them, and is refused what cannot be."""

import pytest

from trainer_adapter.tasks.mix import MixFile, mix_path


@pytest.fixture
def trainer(settings):
    """The trainer's side of the mix."""
    file = MixFile(mix_path(settings, "r"))
    file.begin({"math": 1.0, "repair": 3.0})
    return file


def test_a_mix_is_shown_and_changed_for_the_trainer(agent_layer, trainer):
    status, shown, _ = agent_layer("mix", "r")
    assert status == 0
    assert [line.split() for line in shown.splitlines()] == [["math", "1", "25.0%"], ["repair", "3", "75.0%"]]

    status, changed, _ = agent_layer("mix", "r", "math=0.5", "repair=0")

    assert status == 0
    assert [line.split() for line in changed.splitlines()] == [["math", "0.5", "100.0%"], ["repair", "0", "0.0%"]]
    assert trainer.poll() == {"math": 0.5, "repair": 0.0}


@pytest.mark.parametrize(
    ("change", "named"), [("math", "SOURCE=WEIGHT"), ("maths=1", "found maths"), ("math=x", "math=x")]
)
def test_what_cannot_be_is_refused(agent_layer, trainer, change, named):
    status, _, err = agent_layer("mix", "r", change)

    assert status == 2
    assert named in err.replace("\n", " ")
    assert trainer.poll() == {"math": 1.0, "repair": 3.0}
