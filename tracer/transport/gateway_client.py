"""Client of the gateway's rollout API: open, renew, mark, pause, close and end. Standard library only.

With several gateways, each attempt belongs to one, chosen by a hash of its rollout id plus the attempt's number.
"""

from collections import defaultdict
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import SupportsFloat, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit
from zlib import crc32

import msgspec

from agent_layer.errors import (
    AccessRefusedError,
    AgentLayerError,
    BadInputError,
    LeaseLostError,
    NotFoundError,
    NotWholeError,
    UnreachableError,
)
from agent_layer.schema import (
    ACCESS,
    CLOSE_ROLLOUT,
    END_ROLLOUT,
    MARK_ROLLOUT,
    OPEN_ROLLOUT,
    PAUSE_ROLLOUT,
    RENEW_ROLLOUTS,
    REWARD_ROLLOUT,
    UNREADABLE,
    AccessRequest,
    ClosedRollout,
    CloseRequest,
    EndedRollout,
    Endpoint,
    EndRequest,
    EndStatus,
    GatewayFacts,
    HolderRequest,
    MarkedRollout,
    OpenedRollout,
    OpenRequest,
    RenewedRollouts,
    RenewRequest,
    RewardRequest,
    new_id,
    read_score,
    split_trajectory_id,
)

_ERRORS: dict[int, type[AgentLayerError]] = {
    **dict.fromkeys((401, 403, 407), AccessRefusedError),
    404: NotFoundError,
    409: NotWholeError,
    412: LeaseLostError,
}
_RETRYABLE_STATUSES = frozenset({408, 425, 429})
"""Statuses after which the same request may succeed later."""


B = TypeVar("B", bound=msgspec.Struct)
A = TypeVar("A", bound=msgspec.Struct)


class GatewayClient:
    """Client of one gateway, with the operator's key. Keeps no connection, so threads may share it.

    Every method raises UnreachableError (no answer, or an error of the gateway), AccessRefusedError (another key opens
    it), NotFoundError (the gateway does not know this rollout, for example because it was restarted), NotWholeError,
    LeaseLostError (another holder has resumed the rollout), or BadInputError (the gateway refuses the request).
    """

    def __init__(
        self, url: str, api_key: str | None, *, connect_seconds: float = 5.0, answer_seconds: float = 90.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInputError(f"gateway {url!r}: expected http://host:port; set AGENT_LAYER_GATEWAY_URL to that")
        self.url = url.rstrip("/").removesuffix("/v1")
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._address = parts.netloc.rpartition("@")[2]
        self._path = urlsplit(self.url).path
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._connect_seconds = connect_seconds
        self._answer_seconds = answer_seconds

    def check_access(self) -> list[GatewayFacts]:
        """Return what each gateway records into, which shows that it takes our key."""
        return [self._call(ACCESS, ACCESS.path, AccessRequest(), answer_seconds=self._connect_seconds)]

    def open(self, request: OpenRequest) -> OpenedRollout:
        """Open one attempt; its calls are accepted from now on."""
        return self._call(OPEN_ROLLOUT, OPEN_ROLLOUT.path, request)

    def renew(self, trajectory_ids: Sequence[str], lease_seconds: float) -> RenewedRollouts:
        """Renew the keys of these attempts for ``lease_seconds`` from now. Waits ``connect_seconds`` at most."""
        request = RenewRequest(trajectory_ids=list(trajectory_ids), lease_seconds=lease_seconds)
        return self._call(RENEW_ROLLOUTS, RENEW_ROLLOUTS.path, request, answer_seconds=self._connect_seconds)

    def reward(self, request: RewardRequest) -> None:
        """Judge a rollout; for clients that have the address and key of the rollout itself."""
        self._post(REWARD_ROLLOUT, REWARD_ROLLOUT.path, request)

    def mark(self, rollout_id: str, attempt: int, key: str | None = None) -> MarkedRollout:
        """Return the progress of the attempt, for a checkpoint. The gateway keeps the attempt when its holder dies."""
        path = MARK_ROLLOUT.fill(rollout_id=rollout_id)
        return self._call(MARK_ROLLOUT, path, HolderRequest(attempt=attempt, key=key))

    def pause(self, rollout_id: str, attempt: int, key: str | None = None) -> MarkedRollout:
        """Abort the calls of the attempt and revoke its key, until it is opened with ``resume``."""
        path = PAUSE_ROLLOUT.fill(rollout_id=rollout_id)
        return self._call(PAUSE_ROLLOUT, path, HolderRequest(attempt=attempt, key=key))

    def close(self, rollout_id: str, attempt: int, *, key: str | None = None, abort: bool = False) -> ClosedRollout:
        """Refuse new calls of the attempt, wait for running calls (or abort them), and count all calls.

        Args:
            rollout_id: the rollout.
            attempt: number of the attempt.
            key: key of the attempt, so that only its holder can close it; None: not checked.
            abort: abort running calls instead of waiting for them.
        """
        request = CloseRequest(attempt=attempt, key=key, abort=abort)
        return self._call(CLOSE_ROLLOUT, CLOSE_ROLLOUT.fill(rollout_id=rollout_id), request)

    def end(
        self,
        rollout_id: str,
        *,
        attempt: int | None = None,
        reward: SupportsFloat | None = None,
        status: EndStatus = "completed",
        error: str | None = None,
        traceback: str | None = None,
    ) -> EndedRollout:
        """Close the attempt, wait until all of it is stored, and accept it; for rollouts without a worker.

        Raises: BadInputError: the reward is no finite number.
        """
        score = None if reward is None else read_score(reward, f"reward of rollout {rollout_id}")
        ending = EndRequest(attempt=attempt, reward=score, status=status, error=error, traceback=traceback)
        return self._call(END_ROLLOUT, END_ROLLOUT.fill(rollout_id=rollout_id), ending)

    def _call(self, endpoint: Endpoint[B, A], path: str, body: B, answer_seconds: float | None = None) -> A:
        return msgspec.json.decode(self._post(endpoint, path, body, answer_seconds), type=endpoint.answer)

    def _post(self, endpoint: Endpoint[B, A], path: str, body: B, answer_seconds: float | None = None) -> bytes:
        connection = self._kind(self._address, timeout=self._connect_seconds)
        try:
            connection.connect()
            connection.sock.settimeout(answer_seconds or self._answer_seconds)
            connection.request(endpoint.method, self._path + path, msgspec.json.encode(body), self._headers)
            response = connection.getresponse()
            status, answer = response.status, response.read()
        except (OSError, HTTPException) as error:
            raise UnreachableError(
                f"gateway {self.url}: expected an answer to POST {path}, found {error!r};"
                " start one with 'agent-layer up' or 'agent-layer serve', or correct AGENT_LAYER_GATEWAY_URL"
            ) from error
        finally:
            connection.close()
        if status >= 300:
            raise self._refusal(status, path, answer)
        return answer

    def _refusal(self, status: int, path: str, answer: bytes) -> AgentLayerError:
        is_passing = status >= 500 or status in _RETRYABLE_STATUSES
        kind = _ERRORS.get(status, UnreachableError if is_passing else BadInputError)
        return kind(f"gateway {self.url}: POST {path} was answered {status}: {_error_message(answer)}")


class _Fault(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Fault | str


def _error_message(answer: bytes) -> str:
    """Return the message of an error answer, in OpenAI's form or plain text."""
    try:
        error = msgspec.json.decode(answer, type=_Refusal).error
    except UNREADABLE:
        return answer[:500].decode("utf-8", "replace").strip() or "(no text)"
    return error if isinstance(error, str) else error.message


class WaitLimits(TypedDict, total=False):
    """Time limits of a client; see GatewayClient."""

    connect_seconds: float
    answer_seconds: float


class ShardedGatewayClient(GatewayClient):
    """Client of several gateways. Consecutive attempts of a rollout belong to consecutive gateways.

    So the next attempt after the loss of a machine runs at another gateway, and no state records which one.
    """

    def __init__(self, urls: Sequence[str], api_key: str | None, **limits: Unpack[WaitLimits]) -> None:
        super().__init__(urls[0], api_key, **limits)
        self._gateways = [GatewayClient(url, api_key, **limits) for url in urls]

    def check_access(self) -> list[GatewayFacts]:
        """See GatewayClient."""
        return [facts for gateway in self._gateways for facts in gateway.check_access()]

    def open(self, request: OpenRequest) -> OpenedRollout:
        """See GatewayClient."""
        rollout_id = request.rollout_id or new_id()
        named = msgspec.structs.replace(request, rollout_id=rollout_id)
        return self._owner(rollout_id, request.attempt or 0).open(named)

    def renew(self, trajectory_ids: Sequence[str], lease_seconds: float) -> RenewedRollouts:
        """See GatewayClient; attempts of an unreachable gateway are reported as unknown."""
        owned, renewed = defaultdict[GatewayClient, list[str]](list), RenewedRollouts(unknown=[])
        for name in trajectory_ids:
            owned[self._owner(*split_trajectory_id(name))].append(name)
        for gateway, names in owned.items():
            try:
                renewed += gateway.renew(names, lease_seconds)
            except AccessRefusedError:
                raise
            except UnreachableError:
                renewed += RenewedRollouts(unknown=names)
        return renewed

    def mark(self, rollout_id: str, attempt: int, key: str | None = None) -> MarkedRollout:
        """See GatewayClient."""
        return self._owner(rollout_id, attempt).mark(rollout_id, attempt, key)

    def pause(self, rollout_id: str, attempt: int, key: str | None = None) -> MarkedRollout:
        """See GatewayClient."""
        return self._owner(rollout_id, attempt).pause(rollout_id, attempt, key)

    def close(self, rollout_id: str, attempt: int, *, key: str | None = None, abort: bool = False) -> ClosedRollout:
        """See GatewayClient."""
        return self._owner(rollout_id, attempt).close(rollout_id, attempt, key=key, abort=abort)

    def end(
        self,
        rollout_id: str,
        *,
        attempt: int | None = None,
        reward: SupportsFloat | None = None,
        status: EndStatus = "completed",
        error: str | None = None,
        traceback: str | None = None,
    ) -> EndedRollout:
        """See GatewayClient; None: the first attempt."""
        gateway = self._owner(rollout_id, attempt or 0)
        return gateway.end(rollout_id, attempt=attempt, reward=reward, status=status, error=error, traceback=traceback)

    def _owner(self, rollout_id: str, attempt: int) -> GatewayClient:
        return self._gateways[(crc32(rollout_id.encode()) + attempt) % len(self._gateways)]


def connect_gateway(urls: Sequence[str], api_key: str | None, **limits: Unpack[WaitLimits]) -> GatewayClient:
    """Return a client of one gateway, or of several."""
    if len(urls) > 1:
        return ShardedGatewayClient(urls, api_key, **limits)
    return GatewayClient(urls[0], api_key, **limits)
