"""A limit of cost that all calls of a process share: reserved before a call leaves, settled by its counted tokens.

A call leaves while what was spent and what the calls in flight reserved leave room for one more, or none is in flight.
So the limit is passed by no more than the calls in flight cost, and near it they are made one after the other.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.calls.call import ModelCall
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.engines.models import ExternalModel
from agent_layer.schema import UNREADABLE, Usage

_MILLION = 1e6
_BYTES_PER_TOKEN = 4
"""Size of a request for each token of its prompt, roughly; an answer may cost as much as the dearest so far."""


class TokenPrice(msgspec.Struct, frozen=True, kw_only=True):
    """Price of a model, in US dollars per million tokens."""

    prompt: float
    response: float


class CostLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What the setting ``cost_limit`` says."""

    dollars: float
    """Bound of all calls to the policy; others have no price here."""
    policy: TokenPrice


class Spending:
    """What calls cost so far.

    Args:
        limit: None: no limit.
    """

    def __init__(self, limit: CostLimit | None) -> None:
        self._limit = limit
        self.spent = 0.0
        """US dollars of calls that ended."""
        self._reserved: dict[ModelCall, float] = {}
        """Probable cost of each call in flight."""
        self._largest = 0.0
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def reserve(self, call: ModelCall, external: ExternalModel | None) -> AsyncGenerator[None]:
        """Hold the probable cost of a call inside the block, then count what it cost.

        Args:
            call: any; one to a judge of another party has no price here.
            external: the model of another party that answers; None: an engine does.

        Raises: RefusedError: the limit is reached.
        """
        if self._limit is None or (external is not None and not external.is_policy):
            yield
            return
        price = self._limit.policy
        prompt = price.prompt * call.parsed.size_bytes / _BYTES_PER_TOKEN / _MILLION
        while True:
            if self.spent >= self._limit.dollars:
                raise RefusedError(
                    402,
                    "cost_limit",
                    f"rollout {call.rollout.trajectory_id}: the calls so far cost {self.spent:.2f} $ of at most"
                    f" {self._limit.dollars:.2f} $ (cost_limit); end here",
                )
            amount = max(self._largest, prompt)
            if not self._reserved or self.spent + sum(self._reserved.values()) + amount <= self._limit.dollars:
                break
            self._changed.clear()
            await self._changed.wait()
        self._reserved[call] = amount
        try:
            yield
        finally:
            del self._reserved[call]
            if call.is_billed:
                self._settle(call.usage, amount, price)
            self._changed.set()

    def _settle(self, usage: Usage | None, amount: float, price: TokenPrice) -> None:
        if usage is None or usage.prompt_tokens is None or usage.response_tokens is None:
            self.spent += amount  # cut off, or not counted: what is probable
            return
        cost = (price.prompt * usage.prompt_tokens + price.response * usage.response_tokens) / _MILLION
        self.spent += cost
        self._largest = max(self._largest, cost)


def read_cost_limit(setting: str | None) -> CostLimit | None:
    """Read the setting ``cost_limit``. Raises: BadInputError: it is no limit with prices."""
    try:
        return None if setting is None else msgspec.json.decode(setting, type=CostLimit)
    except UNREADABLE as error:
        raise BadInputError(
            f"setting cost_limit: expected a JSON object with dollars and prices, found {error}; correct"
            ' AGENT_LAYER_COST_LIMIT, for example {"dollars": 5, "policy": {"prompt": 0.1, "response": 0.4}}'
        ) from error
