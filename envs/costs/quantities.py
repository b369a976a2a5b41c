"""What calls and attempts took: a count of stored facts. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from agent_layer.schema import Role, Step, Trajectory
from envs.costs.prices import PriceList

_HOUR = 3600.0
_OTHERS = (None, "litellm")
"""What calls to models of other parties have in place of an engine's address; None: calls that only a hook recorded."""


class CallCount(NamedTuple):
    """One call to a model, whatever number of choices it has."""

    model: str | None
    role: Role
    is_ours: bool
    """Whether a known engine answered, not a model of another party."""
    is_answered: bool
    """False: it was refused or failed, so that nothing was sampled."""
    is_whole: bool
    """False: it was cut off, or its end is not known, so that no server counts its tokens."""
    seconds: float
    """From sending it to the end of its answer, without the time that it waited for an engine; 0 while it runs, and for
    models of other parties."""
    prompt_tokens: int | None
    """Cached ones included; None: the server did not count."""
    response_tokens: int | None
    cached_tokens: int


class Quantities(msgspec.Struct, frozen=True, kw_only=True):
    """What attempts took together."""

    num_calls: float = 0
    num_uncounted: float = 0
    """Answered calls whose tokens the server did not count: tokens, and a cost by tokens, leave them out."""
    num_unpriced: float = 0
    """Answered calls to models of other parties without a price; the cost leaves them out."""
    engine_seconds: float = 0.0
    """Calls that an engine serves at the same time count one by one."""
    prompt_tokens: float = 0
    """Cached ones included."""
    cached_tokens: float = 0
    response_tokens: float = 0
    judge_tokens: float = 0
    """Prompt and response of judges, which the tokens above leave out."""
    sandbox_seconds: float = 0.0
    """Boxes of agents and scorers, summed."""
    cost: float = 0.0
    """Amount in the currency of the prices, judges included; 0 without prices."""

    def __add__(self, other: "Quantities") -> "Quantities":
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        names = self.__struct_fields__
        return Quantities(**{name: one + two for name, (one, two) in zip(names, pairs, strict=True)})

    def divide(self, number: int) -> "Quantities | None":
        """Return an equal share for each of ``number`` things; None: there are none."""
        amounts = msgspec.structs.asdict(self)
        return Quantities(**{name: amount / number for name, amount in amounts.items()}) if number else None


def count_calls(steps: Iterable[Step]) -> Iterator[CallCount]:
    """Yield the calls of a trajectory. Tokens are the server's count, else that of the recorded ids."""
    calls: dict[str, list[Step]] = {}
    for step in steps:
        calls.setdefault(step.call_id, []).append(step)
    for choices in calls.values():
        first, usage = choices[0], choices[0].usage
        prompt = usage.prompt_tokens if usage else None
        response = usage.response_tokens if usage else None
        if prompt is None and first.prompt_token_ids is not None:
            prompt = len(first.prompt_token_ids)
        sampled = [one.action.response_token_ids for one in choices]
        if response is None and None not in sampled:
            response = sum(len(ids or ()) for ids in sampled)
        ends = [one.ended_at for one in choices if one.ended_at is not None]
        is_ours = first.engine not in _OTHERS
        yield CallCount(
            model=first.model,
            role=first.role,
            is_answered=first.status != "error",
            is_whole=first.status == "ok",
            seconds=max(ends) - min(one.started_at for one in choices) if ends and is_ours else 0.0,
            is_ours=is_ours,
            prompt_tokens=prompt,
            response_tokens=response,
            cached_tokens=min((usage.cached_tokens if usage else None) or 0, prompt or 0),
        )


def measure_attempt(trajectory: Trajectory, judges: Iterable[Trajectory], prices: PriceList | None) -> Quantities:
    """Return what an attempt took.

    Args:
        trajectory: without contents.
        judges: those of its judges.
        prices: None: quantities only.
    """
    prices = prices or PriceList()
    total = _measure_calls(trajectory.steps, prices)
    for judge in judges:
        own = _measure_calls(judge.steps, prices)
        total += Quantities(
            num_uncounted=own.num_uncounted,
            num_unpriced=own.num_unpriced,
            judge_tokens=own.prompt_tokens + own.response_tokens,
            cost=own.cost,
        )
    used = trajectory.outcome.sandbox if trajectory.outcome else None
    seconds = (used.box_seconds or 0.0) + (used.scoring_box_seconds or 0.0) if used else 0.0
    return total + Quantities(sandbox_seconds=seconds, cost=(prices.sandbox_hour or 0.0) * seconds / _HOUR)


def _measure_calls(steps: Iterable[Step], prices: PriceList) -> Quantities:
    total = Quantities()
    for call in count_calls(steps):
        prompt, response = call.prompt_tokens, call.response_tokens
        is_counted = call.is_answered and prompt is not None and response is not None
        price, cost = prices.find(call.model), 0.0
        if price is None:
            cost = (prices.engine_hour or 0.0) * call.seconds / _HOUR
        elif is_counted:
            cost = price.cost(prompt or 0, response or 0, call.cached_tokens)
        total += Quantities(
            num_calls=1,
            num_uncounted=call.is_answered and not is_counted,
            num_unpriced=call.is_answered and price is None and not call.is_ours,
            engine_seconds=call.seconds,
            prompt_tokens=(prompt or 0) if is_counted else 0,
            cached_tokens=call.cached_tokens if is_counted else 0,
            response_tokens=(response or 0) if is_counted else 0,
            cost=cost,
        )
    return total
