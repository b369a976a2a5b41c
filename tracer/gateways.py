"""This file holds gateways on several machines as one: each attempt has its place among them by its name."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypedDict, Unpack
from zlib import crc32

import msgspec

from agent_layer.errors import UnreachableError
from agent_layer.schema.gateway import (
    ClosedRollout,
    EndedRollout,
    EndStatus,
    MarkedRollout,
    OpenedRollout,
    OpenRequest,
    RenewedRollouts,
)
from agent_layer.schema.ids import new_id, split_trajectory_id
from tracer.gateway import GatewayClient

__all__ = ["SeveralGateways", "connect_gateway"]


class WaitLimits(TypedDict, total=False):
    """How long a client waits; see GatewayClient."""

    connect_seconds: float
    answer_seconds: float


class SeveralGateways(GatewayClient):
    """Talks to whichever gateway an attempt belongs to; the next attempt belongs to the next one.

    So where a machine is gone, what ran there is run again elsewhere, and nobody has to remember where it was.
    """

    def __init__(self, urls: Sequence[str], api_key: str | None, **limits: Unpack[WaitLimits]) -> None:
        super().__init__(urls[0], api_key, **limits)
        self._gateways = [GatewayClient(url, api_key, **limits) for url in urls]

    def open(self, request: OpenRequest) -> OpenedRollout:
        """See GatewayClient."""
        rollout_id = request.rollout_id or new_id()
        named = msgspec.structs.replace(request, rollout_id=rollout_id)
        return self._home(rollout_id, request.attempt or 0).open(named)

    def renew(self, trajectory_ids: Sequence[str], lease_seconds: float) -> RenewedRollouts:
        """See GatewayClient; what a gateway has that is gone is not open."""
        owned, renewed = defaultdict[GatewayClient, list[str]](list), RenewedRollouts(unknown=[])
        for name in trajectory_ids:
            owned[self._home(*split_trajectory_id(name))].append(name)
        for gateway, names in owned.items():
            try:
                renewed += gateway.renew(names, lease_seconds)
            except UnreachableError:
                renewed += RenewedRollouts(unknown=names)
        return renewed

    def mark(self, rollout_id: str, attempt: int, key: str | None = None) -> MarkedRollout:
        """See GatewayClient."""
        return self._home(rollout_id, attempt).mark(rollout_id, attempt, key)

    def pause(self, rollout_id: str, attempt: int, key: str | None = None) -> MarkedRollout:
        """See GatewayClient."""
        return self._home(rollout_id, attempt).pause(rollout_id, attempt, key)

    def close(self, rollout_id: str, attempt: int, *, key: str | None = None, abort: bool = False) -> ClosedRollout:
        """See GatewayClient."""
        return self._home(rollout_id, attempt).close(rollout_id, attempt, key=key, abort=abort)

    def end(
        self,
        rollout_id: str,
        *,
        attempt: int | None = None,
        reward: float | None = None,
        status: EndStatus = "completed",
    ) -> EndedRollout:
        """See GatewayClient; None: the first attempt."""
        gateway = self._home(rollout_id, attempt or 0)
        return gateway.end(rollout_id, attempt=attempt, reward=reward, status=status)

    def _home(self, rollout_id: str, attempt: int) -> GatewayClient:
        return self._gateways[(crc32(rollout_id.encode()) + attempt) % len(self._gateways)]


def connect_gateway(urls: Sequence[str], api_key: str | None, **limits: Unpack[WaitLimits]) -> GatewayClient:
    """Give a client of the gateway, or of all of them together."""
    if len(urls) > 1:
        return SeveralGateways(urls, api_key, **limits)
    return GatewayClient(urls[0], api_key, **limits)
