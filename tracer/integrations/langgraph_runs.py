"""Runs of graphs, nodes and tools while they last: which node, state and earlier call a model call belongs to.

A run keeps references only. The agent, node, state and parent of a call are worked out when there is a call.

Each run of a node has a lineage of its own. It begins after the last call of the superstep before, so that parallel
nodes, and a node that is retried, are not parents of each other.

``interrupt(question)`` and ``Command(resume=answer)`` are one observation, recorded when the answer comes. A question
without an answer is recorded when its rollout ends.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, cast

import msgspec

from agent_layer.schema import GraphPlace
from tracer.core import CallLineage, ContentWriter, Scope, ToolUse, is_pause

_START = "__start__"
_PUSH = "__pregel_push"
_JOIN = "join:"
_UNNAMED = "LangGraph"
"""LangGraph's name for a graph that was compiled without one."""

AddState: TypeAlias = Callable[[object, ContentWriter], str]


class _Progress(msgspec.Struct, eq=False):
    """Progress of one run of a graph. Nodes of one superstep run in parallel."""

    before: CallLineage
    """Lineage at the end of the superstep before."""
    now: CallLineage
    """Lineage including the nodes that ended in this superstep."""
    superstep: int = -1
    nodes_before: list[str] | None = None
    """Nodes that ended in the superstep before; None: not known, because the graph resumes from a checkpoint."""
    nodes_now: list[str] = []

    def reach(self, superstep: int) -> None:
        """Begin a superstep, unless it has begun."""
        if superstep <= self.superstep:
            return
        if self.nodes_now:
            self.nodes_before, self.nodes_now = self.nodes_now, []
        self.before = self.now
        self.now = CallLineage(self.before.latest_call, self.before.environment)
        self.superstep = superstep

    def join(self, name: str, lineage: CallLineage | None) -> None:
        """Add a node that ended, with its lineage."""
        self.nodes_now.append(name)
        if lineage is None:
            return
        if lineage.latest_call != self.before.latest_call:
            self.now.latest_call = lineage.latest_call
        if lineage.environment != self.before.environment:
            self.now.environment = lineage.environment


class Run(msgspec.Struct, eq=False):
    """One run of a graph, a node, a tool or another LangChain runnable."""

    base: Scope
    """Scope of the context in which it began."""
    parent: "Run | None" = None
    name: object = None
    metadata: Mapping[str, object] = {}
    """Metadata."""
    inputs: object = None
    place: "Run | None" = None
    """The innermost surrounding node or tool, or this run if it is one."""
    progress: _Progress | None = None
    """Progress of a graph, once a node has begun."""
    before: CallLineage = msgspec.field(default_factory=CallLineage)
    """Lineage of a node at its beginning."""
    came_from: list[str] | None = None
    tool: ToolUse | None = None
    scope: Scope | None = None
    """Scope of a node or tool, once a call needs it."""
    add_state: AddState | None = None


def begin_chain(run: Run) -> Run:
    """Begin a chain. It is a node when its name equals the node name in its metadata."""
    parent, metadata = run.parent, run.metadata
    around = run.place = parent.place if parent else None
    if run.name is None or run.name != metadata.get("langgraph_node"):
        return run
    if around is not None and around.metadata.get("langgraph_checkpoint_ns") == metadata.get("langgraph_checkpoint_ns"):
        return run
    run.place = run
    if parent is not None and parent.place is parent:  # a task of the functional API, called by a function like it
        caller = scope_at(parent, parent.base).lineage
        run.before, run.came_from = CallLineage(caller.latest_call, caller.environment), [str(parent.name)]
    elif parent is not None:
        progress = parent.progress or _begin_progress(parent)
        progress.reach(read_superstep(metadata))
        run.before, run.came_from = progress.before, progress.nodes_before
    return run


def begin_tool(parent: Run | None, base: Scope, use: ToolUse) -> Run:
    """Begin a tool; its calls are children of the call that requested it."""
    run = Run(base, parent, use.name, parent.metadata if parent else {}, tool=use)
    run.place = run
    run.scope = msgspec.structs.replace(
        use.scope, lineage=CallLineage(use.call_id, use.scope.lineage.environment), tool=use, place=run
    )
    return run


def end_chain(run: Run, *, is_success: bool) -> None:
    """Pass the lineage of a run on: from a node to its graph, from a graph to its caller."""
    parent = run.parent
    if run.place is run:
        if is_success and parent is not None and parent.place is parent and run.scope is not None:
            caller = scope_at(parent, parent.base).lineage
            caller.latest_call, caller.environment = run.scope.lineage.latest_call, run.scope.lineage.environment
        elif is_success and parent is not None and parent.progress is not None:
            parent.progress.join(str(run.name), run.scope and run.scope.lineage)
    elif run.progress is not None:
        outer = scope_at(parent, run.base).lineage
        outer.latest_call, outer.environment = run.progress.now.latest_call, run.progress.now.environment


def scope_at(run: Run | None, base: Scope) -> Scope:
    """Return the scope of the code of a run.

    Args:
        run: None: the code does not run in a framework.
        base: scope of the context. A scope that was entered inside the node, such as that of a decorated agent, and
            one of another rollout are returned unchanged.
    """
    place = run.place if run else None
    if place is None or base.place is place or place.base.rollout is not base.rollout:
        return base
    if place.scope is None:
        place.scope = _enter_node(place)
    return place.scope


def read_superstep(metadata: Mapping[str, object]) -> int:
    """Return the superstep in which a node runs."""
    superstep = metadata.get("langgraph_step")
    return superstep if isinstance(superstep, int) else 0


def _begin_progress(graph: Run) -> _Progress:
    outer = scope_at(graph.parent, graph.base).lineage
    begun = CallLineage(outer.latest_call, outer.environment)
    goes_on = graph.inputs is None or type(graph.inputs).__name__ == "Command"
    graph.progress = _Progress(begun, begun, nodes_before=None if goes_on else [_START])
    return graph.progress


def _enter_node(run: Run) -> Scope:
    """Return the scope of a graph's node; the agent is the graph when it has a name, or the function itself."""
    graph, metadata = run.parent, run.metadata
    outer = scope_at(graph, run.base)
    name, graph_name = str(run.name), run.name if _is_function(metadata) else graph and graph.name
    branch = _read_branch(metadata)
    return msgspec.structs.replace(
        outer,
        agents=outer.agents_with(graph_name if isinstance(graph_name, str) and graph_name != _UNNAMED else None),
        node=name,
        conversation=_name_conversation(run, outer, branch),
        lineage=CallLineage(run.before.latest_call, run.before.environment),
        graph=GraphPlace(
            path=[*(outer.graph.path if outer.graph else ()), name],
            superstep=read_superstep(metadata),
            came_from=_joined(metadata) or run.came_from,
            branch=branch,
        ),
        place=run,
        read_state=partial(run.add_state, run.inputs) if run.add_state else outer.read_state,
    )


def _is_function(metadata: Mapping[str, object]) -> bool:
    """Whether the code is an entrypoint or a task of the functional API, which is its own program and not a node."""
    path = cast("Sequence[object]", metadata.get("langgraph_path") or ())
    is_task = len(path) > 1 and path[0] == _PUSH and path[-1] is True
    return is_task or tuple(cast("Sequence[object]", metadata.get("langgraph_triggers") or ())) == (_START,)


def _read_branch(metadata: Mapping[str, object]) -> int | None:  # kept: a match that returns from its cases
    """Return the index of the ``Send`` that started the node; None when an edge did."""
    match metadata.get("langgraph_path"):
        case (str(kind), *_, int(index), bool()) if kind == _PUSH:  # pyright: ignore[reportUnknownVariableType]  # whatever is between
            return index
        case _:
            return None


def _joined(metadata: Mapping[str, object]) -> list[str] | None:
    """Return the nodes that an edge with several sources waited for."""
    triggers = cast("Sequence[str]", metadata.get("langgraph_triggers") or ())
    joins = [one.removeprefix(_JOIN).partition(":")[0] for one in triggers if one.startswith(_JOIN)]
    return joins[0].split("+") if joins else None


def _name_conversation(run: Run, outer: Scope, branch: int | None) -> str | None:
    """Return the conversation: the thread of the graph when it has its own, plus the branch."""
    thread, graph = run.metadata.get("thread_id"), run.parent
    around = graph.place if graph else None
    is_own = thread is not None and (around is None or around.metadata.get("thread_id") != thread)
    conversation = str(thread) if is_own else outer.conversation
    if branch is None:
        return conversation
    return f"{conversation or ''}/{run.name}@{read_superstep(run.metadata)}.{branch}".lstrip("/")


_NAME = "interrupt"


def open_questions(run: Run, error: BaseException) -> None:
    """Remember the questions of a node that this error interrupts."""
    if run.place is not run or not is_pause(error):
        return
    scope = scope_at(run.parent, run.base)
    for interrupt in _interrupts(error):
        question, name = getattr(interrupt, "value", None), str(getattr(interrupt, "id", ""))
        questions, key = scope.rollout.questions, (_thread_id(run), name)
        if key in questions:  # the node around this one, or this one again, when another question was answered
            questions[key].arguments = question
        else:
            questions[key] = ToolUse(scope=scope, name=_NAME, arguments=question, call_id=run.before.latest_call)


def answer_questions(run: Run) -> None:
    """Record the answers with which a graph resumes.

    An answer with a question's id is for that question only. LangGraph refuses one without id to several questions.
    """
    answer = cast("object", getattr(run.inputs, "resume", None))
    questions = run.base.rollout.questions
    if answer is None:
        return
    by_id = _by_id(answer)
    is_by_id = any(name in by_id for _, name in questions)
    here = [name for thread, name in questions if thread == _thread_id(run)]
    for name in here:
        if name in by_id or (not is_by_id and len(here) == 1):
            questions.pop((_thread_id(run), name)).record(by_id[name] if is_by_id else answer)


def is_handover(error: BaseException) -> bool:
    """Whether this error means that the node has ended and hands over to a node of the parent graph."""
    return type(error).__name__ == "ParentCommand"


def _by_id(answer: object) -> Mapping[object, object]:  # kept: in place, it would leave the answer partly typed
    return cast("Mapping[object, object]", answer) if isinstance(answer, Mapping) else {}


def _interrupts(error: BaseException) -> Sequence[object]:
    first: object = error.args[0] if error.args else None
    return cast("Sequence[object]", first) if isinstance(first, (tuple, list)) else ()


def _thread_id(run: Run) -> str:
    return str(run.metadata.get("thread_id"))
