"""The tree of prefixes of a trajectory: which step continues which tokens, why one does not, what was given up."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from agent_layer.schema import ABANDONED, Step, Trajectory
from agent_layer.view.answers import ForkNode, ForksAnswer
from agent_layer.view.reads import Asked, Source
from agent_layer.view.reads.tokens.tokens import break_cause, parent_of


def show_forks(source: Source, asked: Asked) -> ForksAnswer:
    """Return the tree of prefixes of a trajectory. Raises: NotFoundError: there is none of this id."""
    whole = source.trajectory(asked.path["trajectory"])
    parents = {step.index: parent_of(whole, step) for step in whole.steps}
    children: defaultdict[int | None, list[int]] = defaultdict(list)
    for index, parent in parents.items():
        children[parent].append(index)
    nodes = [_node(whole, step, parents, children) for step in whole.steps]
    return ForksAnswer(
        nodes=nodes,
        rows=[_path(leaf, parents) for leaf in parents if leaf not in children],
        num_tokens=sum(node.num_given + node.num_sampled for node in nodes),
        num_given_again=sum(node.num_given for node in nodes if node.cause is not None),
        causes=dict(Counter(node.cause for node in nodes if node.cause is not None)),
    )


def _node(
    whole: Trajectory, step: Step, parents: Mapping[int, int | None], children: Mapping[int | None, Sequence[int]]
) -> ForkNode:
    parent = parents[step.index]
    caller = next((one.index for one in whole.steps if one.call_id == step.parent_call and one.choice == 0), None)
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
        is_abandoned=ABANDONED in step.findings or _is_passed_over(whole, step, parent, children),
    )


def _is_passed_over(
    whole: Trajectory, step: Step, parent: int | None, children: Mapping[int | None, Sequence[int]]
) -> bool:
    """Return whether another branch from the same tokens went on, and this one did not."""
    if parent is None or children.get(step.index):
        return False
    beside = (one for one in children[parent] if one != step.index and whole.steps[one].agent == step.agent)
    return any(children.get(one) for one in beside)


def _path(leaf: int, parents: Mapping[int, int | None]) -> list[int]:
    path = [leaf]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    return path[::-1]
