"""Tokens in ranges, in columns: of one step with its whole prompt, or of a trajectory without what prompts repeat."""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from agent_layer.schema import Step, Trajectory, prefix_break_cause
from agent_layer.store import pick_step, read_step_tokens
from agent_layer.view.answers.details import TokenPart, TokensAnswer
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext

_MAX_TOKENS = 16_384
"""Tokens in one answer."""
_DIGITS = 6


class _Token(NamedTuple):
    token_id: int
    text: bytes | None
    is_sampled: bool
    step: int
    logprob: float | None = None
    trained_logprob: float | None = None
    advantage: float | None = None
    mask: int | None = None
    version: int | None = None


def show_step_tokens(source: ReadContext, params: RequestParams) -> TokensAnswer:
    """Return tokens of a step: of its whole prompt, then of its answer.

    Raises: NotFoundError: there is no such step.
    """
    whole = source.trajectory(params.path["trajectory"])
    step = pick_step(whole, params.path_number("step"))
    return _answer(source, params, whole, _lineage(whole, step), step.index)


def show_tokens(source: ReadContext, params: RequestParams) -> TokensAnswer:
    """Return tokens of a trajectory: each step lays down what it adds, in order of steps."""
    whole = source.trajectory(params.path["trajectory"])
    return _answer(source, params, whole, whole.steps, None)


class Places:
    """Indices of the steps of a trajectory by what later steps name them by."""

    def __init__(self, whole: Trajectory) -> None:
        self._by_answer: dict[tuple[str | None, int], int] = {}
        for step in whole.steps:
            self._by_answer.setdefault((step.call_id, step.choice), step.index)

    def find_parent(self, step: Step) -> int | None:
        """Return the index of the step whose tokens this one continues; None: of none."""
        if step.prompt is None or step.prompt.parent_call is None:
            return None
        return self._by_answer.get((step.prompt.parent_call, step.prompt.parent_choice))

    def before(self, step: Step) -> int | None:
        """Return the index of its parent, or else of its caller."""
        return self.find_caller(step) if (parent := self.find_parent(step)) is None else parent

    def find_caller(self, step: Step) -> int | None:
        """Return the index of the step whose answer led to this one; None: not known."""
        return self._by_answer.get((step.parent_call, 0))


def break_cause(step: Step) -> str | None:
    """Return why its prompt does not continue earlier tokens although it should; None: it does, or need not."""
    return next((cause for finding in step.findings if (cause := prefix_break_cause(finding))), None)


def lay_out(whole: Trajectory, steps: Sequence[Step], *, repeats: bool = False) -> list[TokenPart]:
    """Place the tokens that each step adds, one after another.

    Args:
        whole: the trajectory.
        steps: some of its steps, in order.
        repeats: whether the prefix of each is what was laid down before, and so is no gap.
    """
    places, parts = Places(whole), list[TokenPart]()
    updates = {call[:2]: one.step for one in whole.trained for call in one.calls}
    start = 0
    for step in steps:
        part = TokenPart(
            step=step.index,
            start=start,
            num_given=len(step.prompt.delta) if step.prompt else 0,
            num_sampled=len(step.action.response_token_ids or ()),
            prefix_length=0 if repeats or step.prompt is None else step.prompt.prefix_length,
            parent=places.find_parent(step),
            break_cause=break_cause(step),
            update=updates.get((step.call_id, step.choice)),
        )
        parts.append(part)
        start += part.num_given + part.num_sampled
    return parts


def token_ids(steps: Sequence[Step]) -> list[int]:
    """Return the ids that these steps lay down."""
    given = ((step.prompt.delta if step.prompt else (), step.action.response_token_ids or ()) for step in steps)
    return list(chain.from_iterable(chain.from_iterable(given)))


def _lineage(whole: Trajectory, step: Step) -> list[Step]:
    """Return the steps whose tokens make up the prompt of a step, and the step."""
    places, found = Places(whole), [step]
    while (parent := places.find_parent(found[-1])) is not None:
        found.append(whole.steps[parent])
    return found[::-1]


def _answer(
    source: ReadContext, params: RequestParams, whole: Trajectory, steps: Sequence[Step], index: int | None
) -> TokensAnswer:
    parts = lay_out(whole, steps, repeats=index is not None)
    total = sum(part.num_given + part.num_sampled for part in parts)
    begin = min(params.number("from", 0, 0, 2**31), total)
    end = min(params.number("to", begin + 4_096, 0, 2**31), begin + _MAX_TOKENS, total)
    tokens = [
        token
        for step, part in zip(steps, parts, strict=True)
        if part.start < end and part.start + part.num_given + part.num_sampled > begin
        for token in _cut(list(_tokens(source, whole, step)), begin - part.start, end - part.start)
    ]
    texts = [_text(one.text) for one in tokens]
    return TokensAnswer(
        trajectory_id=whole.trajectory_id,
        step=index,
        begin=begin,
        end=begin + len(tokens),
        total=total,
        has_vocabulary=any(source.vocabulary(step.tokenizer_hash) is not None for step in steps),
        parts=parts,
        ids=[one.token_id for one in tokens],
        texts=texts,
        part_bytes={
            str(begin + at): one.text.hex()
            for at, (one, text) in enumerate(zip(tokens, texts, strict=True))
            if text is None and one.text is not None
        },
        sampled=[int(one.is_sampled) for one in tokens],
        steps=[one.step for one in tokens],
        logprobs=[_rounded(one.logprob) for one in tokens],
        trained_logprobs=[_rounded(one.trained_logprob) for one in tokens],
        advantages=[_rounded(one.advantage) for one in tokens],
        mask=[one.mask for one in tokens],
        versions=[one.version for one in tokens],
    )


def _cut(tokens: Sequence[_Token], begin: int, end: int) -> Sequence[_Token]:
    return tokens[max(0, begin) : max(0, end)]


def _tokens(source: ReadContext, whole: Trajectory, step: Step) -> Iterator[_Token]:
    vocabulary = source.vocabulary(step.tokenizer_hash)
    for token_id in step.prompt.delta if step.prompt else ():
        yield _Token(token_id, vocabulary[token_id] if vocabulary else None, is_sampled=False, step=step.index)
    found = read_step_tokens(whole, step, vocabulary)
    versions = list(chain.from_iterable(repeat(number, num) for number, num in step.action.policy_versions or ()))
    for at, token_id in enumerate(found.token_ids):
        is_trained = at < len(found.mask)
        yield _Token(
            token_id,
            found.texts[at],
            is_sampled=True,
            step=step.index,
            logprob=None if found.logprobs is None else found.logprobs[at],
            trained_logprob=found.trained_logprobs[at] if is_trained else None,
            advantage=found.advantages[at] if is_trained else None,
            mask=found.mask[at] if is_trained else None,
            version=versions[at] if at < len(versions) else None,
        )


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, _DIGITS)
