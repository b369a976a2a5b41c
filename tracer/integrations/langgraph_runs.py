"""This file holds where in a graph a call is made: the runs of graphs, nodes and tools while they last.

A run costs next to nothing when it begins, because only references are kept. What a call made inside it means
(its
agent, node, state, cause) is worked out when there is such a call.

Every run of a node is a line of thought of its own. It begins after the last call of the superstep before, so
that
nodes that run side by side, and a node that is tried again, do not follow from each other.

This file holds what a graph asks of people: ``interrupt(question)``, answered by ``Command(resume=answer)``.

A question and its answer are one observation, recorded when the answer comes. A question that nobody answers is
recorded without one when its rollout ends.
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
"""What LangGraph calls a graph that was compiled without a name."""

AddState: TypeAlias = Callable[[object, ContentWriter], str]


class _Progress(msgspec.Struct, eq=False):
    """How far one run of a graph has come. In a superstep, nodes run side by side."""

    before: CallLineage
    """As the supersteps before left it."""
    now: CallLineage
    """With what ended in this superstep."""
    superstep: int = -1
    nodes_before: list[str] | None = None
    """Nodes that ended in the superstep before; None: not known, because the graph goes on from a checkpoint."""
    nodes_now: list[str] = []

    def reach(self, superstep: int) -> None:
        """Take note of a node of this superstep."""
        if superstep <= self.superstep:
            return
        if self.nodes_now:
            self.nodes_before, self.nodes_now = self.nodes_now, []
        self.before = self.now
        self.now = CallLineage(self.before.latest_call, self.before.environment)
        self.superstep = superstep

    def join(self, name: str, lineage: CallLineage | None) -> None:
        """Take note that a node ended, and of what it left."""
        self.nodes_now.append(name)
        if lineage is None:
            return
        if lineage.latest_call != self.before.latest_call:
            self.now.latest_call = lineage.latest_call
        if lineage.environment != self.before.environment:
            self.now.environment = lineage.environment


class Run(msgspec.Struct, eq=False):
    """One run of a graph, a node, a tool, or of anything else that is made of runs."""

    base: Scope
    """Scope of the context in which it began."""
    parent: "Run | None" = None
    name: object = None
    metadata: Mapping[str, object] = {}
    """Metadata."""
    inputs: object = None
    place: "Run | None" = None
    """The innermost node or tool around, or this run if it is one."""
    progress: _Progress | None = None
    """Of a graph, once it has a node."""
    before: CallLineage = msgspec.field(default_factory=CallLineage)
    """Of a node: where its line of thought begins."""
    came_from: list[str] | None = None
    tool: ToolUse | None = None
    scope: Scope | None = None
    """Of a node or tool, once anybody needs to know."""
    add_state: AddState | None = None


def begin_chain(run: Run) -> Run:
    """Take note that a chain begins; a node is one that has the name which its metadata tell."""
    parent, metadata = run.parent, run.metadata
    around = run.place = parent.place if parent else None
    if run.name is None or run.name != metadata.get("langgraph_node"):
        return run
    if around is not None and around.metadata.get("langgraph_checkpoint_ns") == metadata.get("langgraph_checkpoint_ns"):
        return run
    run.place = run
    if parent is not None:
        progress = parent.progress or _begin_progress(parent)
        progress.reach(read_superstep(metadata))
        run.before, run.came_from = progress.before, progress.nodes_before
    return run


def begin_tool(parent: Run | None, base: Scope, use: ToolUse) -> Run:
    """Take note that a tool begins; what it does follows from the call that asked for it."""
    run = Run(base, parent, use.name, parent.metadata if parent else {}, tool=use)
    run.place = run
    run.scope = msgspec.structs.replace(
        use.scope, lineage=CallLineage(use.call_id, use.scope.lineage.environment), tool=use, place=run
    )
    return run


def end_chain(run: Run, *, is_success: bool) -> None:
    """Hand on what a run has left: a node to its graph, a graph to whoever called it."""
    if run.place is run:
        if is_success and run.parent is not None and run.parent.progress is not None:
            run.parent.progress.join(str(run.name), run.scope and run.scope.lineage)
    elif run.progress is not None:
        outer = scope_at(run.parent, run.base).lineage
        outer.latest_call, outer.environment = run.progress.now.latest_call, run.progress.now.environment


def scope_at(run: Run | None, base: Scope) -> Scope:
    """Give the scope of code that a run executes.

    Args:
        run: None: no framework does.
        base: scope of the code's context; one that was made inside the run's node, such as that of a decorated agent,
            or that of another rollout, stays what it is.
    """
    place = run.place if run else None
    if place is None or base.place is place or place.base.rollout is not base.rollout:
        return base
    if place.scope is None:
        place.scope = _enter_node(place)
    return place.scope


def read_superstep(metadata: Mapping[str, object]) -> int:
    """Read which round of its graph a node runs in."""
    superstep = metadata.get("langgraph_step")
    return superstep if isinstance(superstep, int) else 0


def _begin_progress(graph: Run) -> _Progress:
    outer = scope_at(graph.parent, graph.base).lineage
    begun = CallLineage(outer.latest_call, outer.environment)
    goes_on = graph.inputs is None or type(graph.inputs).__name__ == "Command"
    graph.progress = _Progress(begun, begun, nodes_before=None if goes_on else [_START])
    return graph.progress


def _enter_node(run: Run) -> Scope:
    """Give the scope of a graph's node; the agent is the graph, if it has a name."""
    graph, metadata = run.parent, run.metadata
    outer = scope_at(graph, run.base)
    name, graph_name = str(run.name), graph and graph.name
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


def _read_branch(metadata: Mapping[str, object]) -> int | None:
    """Which of the ``Send`` of its superstep a node's run is; None: of an edge."""
    match metadata.get("langgraph_path"):
        case (str(kind), *_, int(index), bool()) if kind == _PUSH:  # pyright: ignore[reportUnknownVariableType]  # whatever is between
            return index
        case _:
            return None


def _joined(metadata: Mapping[str, object]) -> list[str] | None:
    """Read the nodes that an edge with several sources waited for."""
    triggers = cast("Sequence[str]", metadata.get("langgraph_triggers") or ())
    joins = [one.removeprefix(_JOIN).partition(":")[0] for one in triggers if one.startswith(_JOIN)]
    return joins[0].split("+") if joins else None


def _name_conversation(run: Run, outer: Scope, branch: int | None) -> str | None:
    """Name the conversation: the thread's where the graph has one of its own, and one for each branch."""
    thread, graph = run.metadata.get("thread_id"), run.parent
    around = graph.place if graph else None
    is_own = thread is not None and (around is None or around.metadata.get("thread_id") != thread)
    conversation = str(thread) if is_own else outer.conversation
    if branch is None:
        return conversation
    return f"{conversation or ''}/{run.name}@{read_superstep(run.metadata)}.{branch}".lstrip("/")


_NAME = "interrupt"


def open_questions(run: Run, error: BaseException) -> None:
    """Keep what a node asks when it is left by this error."""
    if run.place is not run or not is_pause(error):
        return
    scope = scope_at(run.parent, run.base)
    for interrupt in _interrupts(error):
        question, name = getattr(interrupt, "value", None), str(getattr(interrupt, "id", ""))
        use = ToolUse(scope=scope, name=_NAME, arguments=question, call_id=run.before.latest_call)
        scope.rollout.questions[_thread_id(run), name] = use


def answer_questions(run: Run) -> None:
    """Record the answers that a graph goes on with; an answer by the id of its question is for that one only."""
    answer = cast("object", getattr(run.inputs, "resume", None))
    questions = run.base.rollout.questions
    if answer is None:
        return
    by_id = _by_id(answer)
    is_by_id = any(name in by_id for _, name in questions)
    for thread, name in list(questions):
        if thread == _thread_id(run) and (name in by_id or not is_by_id):
            questions.pop((thread, name)).record(by_id[name] if is_by_id else answer)


def is_handover(error: BaseException) -> bool:
    """Whether a node that is left by this error has done its part, and sends the graph around it elsewhere."""
    return type(error).__name__ == "ParentCommand"


def _by_id(answer: object) -> Mapping[object, object]:
    return cast("Mapping[object, object]", answer) if isinstance(answer, Mapping) else {}


def _interrupts(error: BaseException) -> Sequence[object]:
    first: object = error.args[0] if error.args else None
    return cast("Sequence[object]", first) if isinstance(first, (tuple, list)) else ()


def _thread_id(run: Run) -> str:
    return str(run.metadata.get("thread_id"))
