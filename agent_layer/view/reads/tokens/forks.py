"""The tree of prefixes of a trajectory: which step continues which tokens, why one does not, what was given up."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from agent_layer.schema import ABANDONED, Step, Trajectory
from agent_layer.view.answers.compare import ForkNode, ForksAnswer
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext
from agent_layer.view.reads.tokens.tokens import Places, break_cause


def show_forks(source: ReadContext, params: RequestParams) -> ForksAnswer:
    """Return the tree of prefixes of a trajectory. Raises: NotFoundError: there is none of this id."""
    return lay_out_forks(source.trajectory(params.path["trajectory"]))


def lay_out_forks(whole: Trajectory) -> ForksAnswer:
    """Return the tree of prefixes of a trajectory, in time that grows with its steps and its rows."""
    places = Places(whole)
    parents = {step.index: places.find_parent(step) for step in whole.steps}
    children: defaultdict[int | None, list[int]] = defaultdict(list)
    for index, parent in parents.items():
        children[parent].append(index)
    went_on = {(parents[one], whole.steps[one].agent) for one in children if one is not None}
    nodes = [
        _node(
            step,
            parents[step.index],
            places.find_caller(step),
            is_passed_over=step.index not in children and (parents[step.index], step.agent) in went_on,
        )
        for step in whole.steps
    ]
    return ForksAnswer(
        nodes=nodes,
        rows=[_path(leaf, parents) for leaf in parents if leaf not in children],
        num_tokens=sum(node.num_given + node.num_sampled for node in nodes),
        num_given_again=sum(node.num_given for node in nodes if node.cause is not None),
        causes=dict(Counter(node.cause for node in nodes if node.cause is not None)),
    )


def _node(step: Step, parent: int | None, caller: int | None, *, is_passed_over: bool) -> ForkNode:
    """Return a step of the tree.

    Args:
        step: which one.
        parent: the step whose tokens it continues.
        caller: the step whose answer led to it.
        is_passed_over: another branch from the same tokens went on, and this one did not.
    """
    return ForkNode(
        step=step.index,
        call_id=step.call_id,
        choice=step.choice,
        parent=caller if parent is None else parent,
        link="tokens" if parent is not None else "call" if caller is not None else None,
        prefix_length=step.prompt.prefix_length if step.prompt else 0,
        num_given=len(step.prompt.delta) if step.prompt else 0,
        num_sampled=len(step.action.response_token_ids or ()),
        agent=step.agent,
        conversation=step.conversation,
        status=step.status,
        cause=break_cause(step),
        is_subagent=len(step.agent_path or ()) > 1,
        is_abandoned=ABANDONED in step.findings or (parent is not None and is_passed_over),
    )


def _path(leaf: int, parents: Mapping[int, int | None]) -> list[int]:
    path = [leaf]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    return path[::-1]
