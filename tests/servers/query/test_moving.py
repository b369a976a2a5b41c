"""Pages keep the order of the shown field while records arrive late."""

import pytest

from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import AttemptStarted
from agent_layer.schema.step import StepPart
from agent_layer.store.index.index import Index
from agent_layer.store.index.search import find_trajectories

AT = 1_000.0


class Overtaken(Index):
    """An index that something is committed to, each time, between the search and the reading of what it found."""

    def __init__(self, index: Index, *arrivals) -> None:
        super().__init__(index.redis, index.keys)
        self._arrivals = list(arrivals)

    def rows_with_positions(self, found, column):
        if self._arrivals:
            self._arrivals.pop(0)()
        return super().rows_with_positions(found, column)


def call(name: str, at: float):
    return StepPart(trajectory_id=name, run="r", call_id="c", source="gateway", phase="start", at=at)


def start(name: str, at: float):
    return AttemptStarted(trajectory_id=name, run="r", rollout_id=name[:-2], attempt=0, task_id="t", started_at=at)


@pytest.fixture
def index(store):
    return Index(store.redis, store.keys)


def list_ids(page):
    return [row.trajectory_id for row in page.items]


def test_a_start_that_becomes_known_while_a_page_is_read_puts_its_row_where_it_belongs(index, write):
    write(start("a-0", AT + 1), start("b-0", AT + 3), call("late-0", AT + 4))
    overtaken = Overtaken(index, lambda: write(start("late-0", AT + 2)))

    page = find_trajectories(overtaken, {}, "newest", 8)

    assert list_ids(page) == ["b-0", "late-0", "a-0"]


def test_what_moves_behind_a_page_stands_on_the_next_one_alone(index, write):
    write(start("a-0", AT + 1), start("b-0", AT + 3), start("c-0", AT + 5), call("late-0", AT + 4))
    overtaken = Overtaken(index, lambda: write(start("late-0", AT + 2)))

    first = find_trajectories(overtaken, {}, "newest", 3)
    second = find_trajectories(overtaken, {}, "newest", 3, first.cursor)

    assert (list_ids(first), list_ids(second)) == (["c-0", "b-0"], ["late-0", "a-0"])


def test_a_reward_that_is_taken_back_while_a_page_is_read_takes_its_row_out(index, write):
    given = Reward(trajectory_id="a-0", run="r", reward_id="1", at=AT, score=0.5)
    taken_back = Reward(
        trajectory_id="a-0", run="r", reward_id="2", at=AT, score=None, status="missing", supersedes="1"
    )
    kept = Reward(trajectory_id="b-0", run="r", reward_id="3", at=AT, score=0.25)
    write(start("a-0", AT), start("b-0", AT), given, kept)
    overtaken = Overtaken(index, lambda: write(taken_back))

    page = find_trajectories(overtaken, {}, "reward", 8)

    assert list_ids(page) == ["b-0"]
