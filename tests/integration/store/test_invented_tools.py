"""Tools that a policy invents: searches find each of them, and only 1,024 have bitmaps."""

import pytest

from agent_layer.schema.step import Action
from agent_layer.store import open_store
from agent_layer.store.index.index import Index
from agent_layer.store.index.membership import select_matching
from agent_layer.store.maintenance.index_audit import count_orphan_bits
from agent_layer.store.segments.fields import MAX_LISTED

from ...builders import attempt, call
from ...stored import mark_deleted, write_segment

TOOLS = {
    "a.0-0": range(600),
    "b.0-0": range(500, 1_100),
    "c.0-0": [1_050, 1_099, 7],
    "d.0-0": [7],
    "e.0-0": [],
    "f.0-0": [5_000, 1_098],
}
REQUESTED = (0, 7, 550, 599, 600, 1_023, 1_024, 1_050, 1_098, 1_099, 5_000, 6_000)


def name_tool(number: int) -> str:
    return f"tool {number}" + "x" * (80 if number % 2 else 0)


def write(store, name, numbers):
    message = {"role": "assistant", "tool_calls": [{"function": {"name": name_tool(number)}} for number in numbers]}
    write_segment(store, *attempt(name, *call(name, "a", Action(message=message)), score=0.5))


@pytest.fixture
def store(settings):
    store = open_store(settings)
    for name, numbers in TOOLS.items():
        write(store, name, numbers)
    return store


def compare(store, tools):
    """What searches find must be what the rows say."""
    for requested in REQUESTED:
        expected = [name for name, numbers in tools.items() if requested in numbers]
        for filters in (
            {"tool": name_tool(requested)},
            {"step": ("tool", name_tool(requested)), "reward": (0.1, None)},
            {"tool": name_tool(requested), "step": ("tool", name_tool(requested)), "status": "completed"},
        ):
            found = [row.trajectory_id for row in store.query(**filters, limit=100).items]
            assert (sorted(found), store.count(**filters)) == (expected, len(expected)), (requested, filters)
            assert select_matching(Index(store.redis, store.keys), list(tools), filters) == {*expected}
            assert store.explain(**filters).num_found == len(expected)
    assert {row.trajectory_id: len(row.tools) for row in store.scan()} == {
        name: len({*numbers}) for name, numbers in tools.items()
    }
    assert count_orphan_bits(store.redis, store.keys) == {}
    assert store.redis.scard(store.keys.values("tool")) <= MAX_LISTED
    assert len(store.redis.keys(store.keys.blocks_with("tool=*"))) <= MAX_LISTED


def test_each_tool_is_found_and_few_have_bitmaps(store):
    compare(store, TOOLS)
    assert store.admin.check().findings == []


@pytest.mark.parametrize("drop", [True, False])
def test_a_rebuild_keeps_the_answers(store, drop):
    store.admin.reindex(drop=drop)

    compare(store, TOOLS)


def test_deleted_tools_leave_room_for_others(store):
    mark_deleted(store, "a.0-0")
    left = {name: numbers for name, numbers in TOOLS.items() if name != "a.0-0"}
    compare(store, left)
    write(store, "g.0-0", [6_000, 1_098])
    left["g.0-0"] = [6_000, 1_098]
    compare(store, left)

    mark_deleted(store, *left)

    compare(store, {})
    assert store.redis.keys(store.keys.name("v", "*")) == []
