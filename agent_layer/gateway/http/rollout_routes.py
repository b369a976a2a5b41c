"""Addresses at which rollouts are opened, renewed, resumed, rewarded, closed and ended."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from aiohttp import web

from agent_layer.errors import BackPressureError, BadInputError, NotFoundError
from agent_layer.gateway.calls.requests import read_body
from agent_layer.gateway.http.auth import Access
from agent_layer.gateway.http.bind import public_address
from agent_layer.gateway.http.errors import as_json
from agent_layer.gateway.http.peers import PeerProxy
from agent_layer.gateway.rollouts.counters import Counters
from agent_layer.gateway.rollouts.finalize import Finalizer, record_reward
from agent_layer.gateway.rollouts.registry import RolloutRegistry
from agent_layer.gateway.rollouts.resume import AttemptResumption
from agent_layer.gateway.rollouts.rollout import LiveRollout, new_rollout
from agent_layer.schema import (
    ACCESS,
    CLOSE_ROLLOUT,
    END_ROLLOUT,
    MARK_ROLLOUT,
    OPEN_ROLLOUT,
    PAUSE_ROLLOUT,
    RENEW_ROLLOUTS,
    REWARD_ROLLOUT,
    AccessRequest,
    ClosedRollout,
    CloseRequest,
    EndedRollout,
    Endpoint,
    EndRequest,
    GatewayFacts,
    HolderRequest,
    MarkedRollout,
    OpenedRollout,
    OpenRequest,
    RecordedReward,
    RenewedRollouts,
    RenewRequest,
    new_id,
    parse_trace,
)
from agent_layer.settings import Settings

B = TypeVar("B", bound=msgspec.Struct)
A = TypeVar("A", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class RolloutRoutes:
    """Reads requests about rollouts, checks their keys, and leaves the work to registry and finalizer."""

    settings: Settings
    access: Access
    rollouts: RolloutRegistry
    finalizer: Finalizer
    resumption: AttemptResumption
    counters: Counters
    model_name: Callable[[], str]
    """Returns the name of the policy's model, for agents that need one."""
    peers: PeerProxy | None = None
    """None: this is the only process."""

    def routes(self) -> list[web.RouteDef]:
        """Addresses; all but rewards are for the operator."""
        return [
            self._operator_route(ACCESS, self._read_facts),
            self._operator_route(OPEN_ROLLOUT, self._open),
            self._operator_route(RENEW_ROLLOUTS, self._renew),
            self._operator_route(MARK_ROLLOUT, self._mark),
            self._operator_route(PAUSE_ROLLOUT, self._pause),
            self._operator_route(CLOSE_ROLLOUT, self._close),
            self._operator_route(END_ROLLOUT, self._end),
            web.post(f"/r/{{trajectory_id}}{REWARD_ROLLOUT.path}", self._reward),
            # from clients that leave /../ in the address unchanged
            web.post(rf"/r/{{trajectory_id}}/v1/{{up:\.\.}}{REWARD_ROLLOUT.path}", self._reward),
        ]

    def _operator_route(
        self, endpoint: Endpoint[B, A], handler: Callable[[web.Request, B], Awaitable[A]]
    ) -> web.RouteDef:
        async def handle(request: web.Request) -> web.Response:
            self.access.check_operator(request)
            return as_json(await handler(request, await read_body(request, endpoint.request)))

        return web.route(endpoint.method, endpoint.path, handle)

    async def _read_facts(self, _: web.Request, __: AccessRequest) -> GatewayFacts:
        objects = self.settings.objects_location
        return GatewayFacts(namespace=self.settings.namespace, objects=objects if objects.startswith("s3://") else None)

    async def _open(self, request: web.Request, body: OpenRequest) -> OpenedRollout:
        body = msgspec.structs.replace(body, trace=body.trace or parse_trace(request.headers))
        wanted = new_rollout(
            body,
            self.settings.run,
            self.peers.new_rollout_id if self.peers else new_id,
            self.rollouts.now,
            max_side_calls=self.settings.max_side_calls,
        )
        if body.resume is None:
            rollout, abandoned = await self._begin(wanted, body.lease_token), list[str]()
        else:
            rollout, abandoned = await self.resumption.resume(wanted.trajectory_id, body.resume, body.lease_token)
        if body.lease_seconds is not None:
            self.rollouts.renew(rollout.trajectory_id, body.lease_seconds)
        return OpenedRollout(
            rollout_id=rollout.started.rollout_id,
            attempt=rollout.started.attempt,
            trajectory_id=rollout.trajectory_id,
            base_url=f"{self._make_address(request)}/r/{rollout.trajectory_id}/v1",
            api_key=rollout.lease.api_key,
            model=self.model_name(),
            abandoned=abandoned,
        )

    async def _begin(self, wanted: LiveRollout, token: int | None) -> LiveRollout:
        await self._take_place(wanted, token)
        rollout = self.rollouts.add(wanted, token)
        if rollout is wanted:
            try:
                self.finalizer.record_start(rollout)
            except BackPressureError:
                self.rollouts.forget(rollout)  # it may be opened again when there is room
                raise
            self.counters.add("rollouts_opened")
        return rollout

    async def _take_place(self, wanted: LiveRollout, token: int | None) -> None:
        """Abort the attempt before this one, because its holder is gone.

        Raises:
            BadInputError: an attempt at this rollout counts already.
            RefusedError: this rollout is held under a later lease.
            NotFoundError: an earlier lease has used this very attempt: Redis has forgotten it, and gave the number out
                again. Its holder is fenced off, and the next attempt is a new one.
        """
        before = self.rollouts.find_newest(wanted)
        if before is None:
            return
        if fenced := self.rollouts.pass_fence(wanted.started.rollout_id, token):
            await self.finalizer.abort(fenced, f"a later lease took its place with {wanted.trajectory_id}")
        if self.rollouts.is_used(wanted.trajectory_id, token):
            raise NotFoundError(
                f"rollout {wanted.trajectory_id}: expected an attempt that was not begun, found it used under an"
                " earlier lease; count it as lost and open another"
            )
        if before.started.attempt >= wanted.started.attempt:
            return
        if before.judgement.is_accepted:
            raise BadInputError(
                f"rollout {wanted.trajectory_id}: {before.trajectory_id} was accepted, and a rollout counts once;"
                " open another rollout"
            )
        if before.is_open:
            await self.finalizer.abort(before, f"{wanted.trajectory_id} took its place")

    async def _renew(self, _: web.Request, body: RenewRequest) -> RenewedRollouts:
        return self.rollouts.renew_all(body)

    async def _close(self, request: web.Request, body: CloseRequest) -> ClosedRollout:
        return await self.finalizer.close(self._find_held(request, body), abort=body.abort)

    async def _mark(self, request: web.Request, body: HolderRequest) -> MarkedRollout:
        return self.resumption.mark(self._find_held(request, body))

    async def _pause(self, request: web.Request, body: HolderRequest) -> MarkedRollout:
        return await self.resumption.pause(self._find_held(request, body))

    async def _end(self, request: web.Request, body: EndRequest) -> EndedRollout:
        return await self.finalizer.end(self._find(request, body.attempt), body)

    async def _reward(self, request: web.Request) -> web.Response:
        rollout = self.access.enter(request)
        body = await read_body(request, REWARD_ROLLOUT.request)
        rollout.check_is_open()
        self.access.check_may_reward(request, rollout)
        reward = record_reward(rollout, body)
        rollout.logs.add(self.finalizer.log.append(reward))
        return as_json(RecordedReward(reward_id=reward.reward_id))

    def _find_held(self, request: web.Request, body: HolderRequest | CloseRequest) -> LiveRollout:
        """Find the attempt that a request names, and check that the client holds it."""
        rollout = self._find(request, body.attempt)
        rollout.check_holder(body.key)
        return rollout

    def _make_address(self, request: web.Request) -> str:
        return public_address(request, self.settings.public_host, self.peers.port if self.peers else None)

    def _find(self, request: web.Request, attempt: int | None) -> LiveRollout:
        return self.rollouts.find_attempt(request.match_info["rollout_id"], attempt)
