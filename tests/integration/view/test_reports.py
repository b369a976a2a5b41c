"""Reports of steps stay parsed while their file is as it was, and are read again once it changed."""

import msgspec
import pytest

from agent_layer.health import append_progress, progress_path
from agent_layer.infra import open_objects
from agent_layer.store import Store
from agent_layer.view import ReadContext

from ...unit.health.reports import report


@pytest.fixture
def source(settings, redis):
    return ReadContext(settings, Store(settings, redis, open_objects(settings)))


def test_a_step_that_is_done_is_seen_and_what_a_caller_does_to_its_list_is_not(source):
    path = progress_path(source.settings, "r")
    assert source.progress("r") == []
    for number in (1, 2):
        append_progress(path, report(number))
        source.progress("r").clear()
        assert [one.step for one in source.progress("r")] == list(range(1, number + 1))

    append_progress(path, msgspec.structs.replace(report(2), success=0.125))
    assert [one.success for one in source.progress("r")][-1] == 0.125


def test_they_are_parsed_once_for_all_pages(source):
    append_progress(progress_path(source.settings, "r"), report(1))

    assert source.progress("r")[0] is source.progress("r")[0]
