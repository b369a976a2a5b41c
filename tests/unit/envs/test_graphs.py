"""A graph that pauses between two supersteps resumes there."""

import asyncio

import pytest

from agent_layer.errors import BadInputError
from envs.checkpoints.graphs import check_graph, run_graph
from envs.resume import is_resumable, resumable

from ...builders import rollout_with
from ...waiting import within
from .counting_graph import NUM_ROUNDS, build

BEGIN = {"numbers": [], "messages": [("user", "go")]}


async def test_a_graph_runs_to_its_end_and_saves_after_each_superstep(keeper):
    kept, done = keeper(), []

    end = await run_graph(build(done.append), BEGIN, rollout_with(kept))

    assert end["numbers"] == list(range(NUM_ROUNDS))
    assert [message.content for message in end["messages"]] == ["go", *map(str, range(NUM_ROUNDS))]
    assert len(kept.states) >= NUM_ROUNDS


@pytest.mark.parametrize("at", range(1, 8))
async def test_one_that_is_told_to_pause_goes_on_where_it_was(keeper, at):
    first, second, done = keeper(pauses_after=at), keeper(), []
    running = asyncio.create_task(run_graph(build(done.append), BEGIN, rollout_with(first)))
    async with within(60, f"the pause after superstep {at}"):
        await first.paused.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    end = await run_graph(build(done.append), BEGIN, rollout_with(second, first.states[-1]))

    assert end["numbers"] == list(range(NUM_ROUNDS))
    assert sorted(done) == sorted(f"{node} {number}" for node in ("count", "watch") for number in range(NUM_ROUNDS))


async def test_runs_side_by_side_do_not_share_their_states(keeper):
    graph, keepers = build(lambda _: None), [keeper() for _ in range(4)]

    ends = await asyncio.gather(*[run_graph(graph, BEGIN, rollout_with(one)) for one in keepers])

    assert [end["numbers"] for end in ends] == [list(range(NUM_ROUNDS))] * 4
    assert len({len(one.states) for one in keepers}) == 1
    assert graph.checkpointer is None


async def test_without_a_worker_a_graph_runs_all_the_same():
    end = await run_graph(build(lambda _: None), BEGIN, rollout_with(None))

    assert end["numbers"] == list(range(NUM_ROUNDS))


def test_a_graph_with_a_checkpointer_of_its_own_is_refused():
    from langgraph.checkpoint.memory import InMemorySaver  # noqa: PLC0415  # slow to import

    graph = build(lambda _: None).copy({"checkpointer": InMemorySaver()})

    with pytest.raises(BadInputError, match="its graph has a checkpointer"):
        check_graph(graph, "mine")


def test_what_is_no_graph_is_refused():
    with pytest.raises(BadInputError, match="needs a graph that LangGraph has compiled"):
        check_graph(object(), "mine")


def test_graphs_and_functions_are_declared_resumable_by_name():
    async def agent(task, rollout):
        """Do nothing."""

    graph = build(lambda _: None).copy({})

    assert not is_resumable(agent)
    assert not is_resumable(graph)
    assert is_resumable(resumable(agent))
    assert is_resumable(resumable(graph))


def test_what_takes_no_attribute_says_so():
    with pytest.raises(BadInputError, match="set resumable = True in its class"):
        resumable(3)
