"""The file in which a user changes a mix: the latest word counts, and a bad value changes nothing."""

import pytest

from agent_layer.errors import BadInputError
from trainer_adapter.tasks.mix import MixFile


@pytest.fixture
def file(tmp_path):
    return MixFile(tmp_path / "runs" / "r" / "mix.json")


@pytest.fixture
def user(tmp_path):
    """The same file, as another process sees it."""
    return MixFile(tmp_path / "runs" / "r" / "mix.json")


def test_a_change_takes_effect_when_the_trainer_looks_next_and_survives_its_restart(file, user):
    file.begin({"a": 1.0, "b": 1.0})
    assert user.change({"b": 3.0}).weights == {"a": 1.0, "b": 3.0}

    assert file.poll() == {"a": 1.0, "b": 3.0}
    assert user.begin({"a": 1.0, "b": 1.0}) == {"a": 1.0, "b": 3.0}


def test_a_changed_configuration_is_newer_than_a_changed_mix(file, user):
    file.begin({"a": 1.0, "b": 1.0})
    user.change({"b": 3.0})

    assert file.begin({"a": 1.0, "b": 0.0, "c": 2.0}) == {"a": 1.0, "b": 0.0, "c": 2.0}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"c": 1.0}, r"expected sources of the run \(a, b\), found c"),
        ({"a": -1.0}, "found a=-1"),
        ({"a": float("nan")}, "found a=nan"),
        ({"a": 0.0, "b": 0.0}, "a weight above 0"),
    ],
)
def test_a_bad_weight_is_refused_and_changes_nothing(file, user, changes, named):
    file.begin({"a": 1.0, "b": 1.0})

    with pytest.raises(BadInputError, match=named):
        user.change(changes)

    assert file.poll() == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("text", ["{", '{"configured": {"a": 1}, "weights": {"x": 1}}', '{"weights": {"a": "much"}}'])
def test_a_file_that_an_editor_broke_is_logged_once_and_the_run_goes_on(file, tmp_path, caplog, text):
    file.begin({"a": 1.0, "b": 2.0})
    (tmp_path / "runs" / "r" / "mix.json").write_text(text)

    assert [file.poll(), file.poll()] == [{"a": 1.0, "b": 2.0}] * 2
    (record,) = caplog.records
    assert "the run goes on with" in record.getMessage()


def test_a_run_without_a_trainer_has_no_mix_to_change(user):
    with pytest.raises(BadInputError, match="expected the mix of a run, found none"):
        user.change({"a": 1.0})
