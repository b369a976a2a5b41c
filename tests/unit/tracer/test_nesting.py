"""However rollouts, agents, tools, threads, tasks and generators are nested, each call is in its own rollout, once."""

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from functools import partial

from hypothesis import given, strategies as st
from langgraph.graph import START, StateGraph

import tracer

from ...waiting import join


@tracer.step
def call(label):
    return label


def in_rollout(label, parts):
    with tracer.rollout(task=label):
        in_turn(label, parts)


def in_agent(label, parts):
    tracer.agent(name=label)(in_turn)(label, parts)


def in_tool(label, parts):
    tracer.tool(name=label)(in_turn)(label, parts)


def in_turn(_, parts):
    for part in parts:
        part()


def in_threads(_, parts):
    threads = [threading.Thread(target=part) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread)


POOL = ThreadPoolExecutor(64)


def in_pool(_, parts):
    for done in [POOL.submit(part) for part in parts]:
        done.result()


def in_copied_context(_, parts):
    context = copy_context()
    for part in parts:
        context.run(part)


def in_tasks(_, parts):
    async def all_at_once():
        await asyncio.gather(*(asyncio.to_thread(part) for part in parts))

    with closing(asyncio.new_event_loop()) as loop:  # asyncio.run would take away the one that pytest keeps
        loop.run_until_complete(all_at_once())
        loop.run_until_complete(loop.shutdown_default_executor())


def in_generator(label, parts):
    """Run every other part in an agent that is a generator, and the parts in between in its consumer."""

    @tracer.agent(name=label)
    def generate():
        for part in parts[::2]:
            part()
            yield

    rest = iter(parts[1::2])
    for _ in generate():
        next(rest, int)()


def in_nodes(label, parts, *, is_parallel=False):
    """A graph whose nodes do the parts, one after the other or side by side."""
    graph = StateGraph(dict)
    for number, part in enumerate(parts):
        graph.add_node(f"n{number}", lambda _, part=part: part())
        graph.add_edge(f"n{number - 1}" if number and not is_parallel else START, f"n{number}")
    graph.compile(name=label).invoke({"some": "state"})


WAYS = {
    "graph": in_nodes,
    "branches": partial(in_nodes, is_parallel=True),
    "rollout": in_rollout,
    "agent": in_agent,
    "tool": in_tool,
    "threads": in_threads,
    "pool": in_pool,
    "context": in_copied_context,
    "tasks": in_tasks,
    "generator": in_generator,
}
trees = st.recursive(
    st.just("call"),
    lambda inner: st.tuples(st.sampled_from(sorted(WAYS)), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=10,
)


def run(tree, label):
    if tree == "call":
        call(label)
        return
    way, inner = tree
    parts = [lambda part=part, number=number: run(part, f"{label}.{number}") for number, part in enumerate(inner)]
    WAYS[way](label, parts)


def expected(tree, label, rollout=None, agents=()):
    """Return (kind, label, rollout, agents) of each call and each tool."""
    if tree == "call":
        return [("call", label, rollout, agents)]
    way, inner = tree
    found = [("tool", label, rollout, agents)] if way == "tool" else []
    for number, part in enumerate(inner):
        where = rollout, agents
        if way == "rollout":
            where = label, ()
        elif way in ("agent", "graph", "branches") or (way == "generator" and number % 2 == 0):
            where = rollout, (*agents, label)
        found += expected(part, f"{label}.{number}", *where)
    return found


def found_in(trajectory):
    task = trajectory.started.task_id
    for step in trajectory.steps:
        agents = tuple(step.agent_path or ([step.agent] if step.agent else ()))
        assert step.status == "ok"
        yield "call", step.action.message["content"], task, agents
    for one in trajectory.observations:
        yield "tool", one.name, task, one.agent


@given(trees)
def test_no_call_is_lost_or_in_another_rollout(tree):
    with tracer.testing.capture() as captured:
        run(tree, "0")

    reported = [one for one in expected(tree, "0") if one[2] is not None]
    reported = [one if one[0] == "call" else (*one[:3], one[3][-1] if one[3] else None) for one in reported]
    found = [one for trajectory in captured.trajectories for one in found_in(trajectory)]
    assert Counter(found) == Counter(reported)


@given(st.lists(trees, min_size=2, max_size=3))
def test_rollouts_that_run_at_the_same_time_never_mix(several):
    with tracer.testing.capture() as captured:
        in_threads("", [lambda tree=tree, n=n: run(("rollout", [tree]), f"{n}") for n, tree in enumerate(several)])

    reported = [
        one for n, tree in enumerate(several) for one in expected(("rollout", [tree]), f"{n}") if one[0] == "call"
    ]
    found = [one for trajectory in captured.trajectories for one in found_in(trajectory) if one[0] == "call"]
    assert Counter(found) == Counter(reported)
