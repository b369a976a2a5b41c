"""``train`` and its command refuse bad arguments before anything starts, each with one sentence."""

from pathlib import Path

import pytest

import trainer_adapter
from agent_layer.errors import BadInputError
from agent_layer.settings import Settings
from envs.tasksets.guess_number.game import Game, compare
from trainer_adapter.entry import import_path


def test_what_can_be_imported_is_named():
    assert import_path(compare) == "envs.tasksets.guess_number.game:compare"
    assert import_path("some.module:graph") == "some.module:graph"


@pytest.mark.parametrize("target", [lambda task: task, Game(3), Settings().model_copy])
def test_what_no_other_process_can_import_is_refused(target):
    with pytest.raises(BadInputError, match="another process can import"):
        import_path(target)


def test_a_task_that_is_none_is_refused_before_anything_starts(tmp_path):
    settings = Settings(dir=tmp_path / "home")

    with pytest.raises(BadInputError, match="task line 2"):
        trainer_adapter.train(compare, [{"input": 1}, {"inptu": 2}], model=Path("m"), steps=1, settings=settings)

    assert not (tmp_path / "home").exists()
