"""This file holds the client of the gateway's own addresses: open, close and end rollouts. Standard library only."""

from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import quote, urlsplit

import msgspec

from agent_layer.errors import AgentLayerError, BadInputError, NotFoundError, NotWholeError, UnreachableError
from agent_layer.schema.gateway import (
    ClosedRollout,
    CloseRequest,
    EndedRollout,
    EndRequest,
    EndStatus,
    OpenedRollout,
    OpenRequest,
    RenewedRollouts,
    RenewRequest,
    RewardRequest,
)

__all__ = ["GatewayClient"]

_ERRORS: dict[int, type[AgentLayerError]] = {404: NotFoundError, 409: NotWholeError}


class GatewayClient:
    """Talks to one gateway as its operator. Holds no connection, so threads may share it.

    Every method raises UnreachableError (no answer, or a fault of the gateway), NotFoundError (the gateway does not
    know this rollout, for example because it was started anew), NotWholeError, or BadInputError (it refuses).
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

    def open(self, request: OpenRequest) -> OpenedRollout:
        """Open one attempt; its calls are accepted from now on."""
        return msgspec.json.decode(self._post("/rollouts", request), type=OpenedRollout)

    def renew(self, trajectory_ids: Sequence[str], lease_seconds: float) -> list[str]:
        """Let the keys of these attempts hold for so long from now; give those that are not open. Never waits long."""
        request = RenewRequest(trajectory_ids=list(trajectory_ids), lease_seconds=lease_seconds)
        answer = self._post("/rollouts/renew", request, answer_seconds=self._connect_seconds)
        return msgspec.json.decode(answer, type=RenewedRollouts).unknown

    def reward(self, request: RewardRequest) -> None:
        """Judge a rollout; for clients whose address and key are those of the rollout itself."""
        self._post("/reward", request)

    def close(self, rollout_id: str, attempt: int) -> ClosedRollout:
        """Refuse new calls of the attempt, let running ones end, and count them."""
        answer = self._post(f"/rollouts/{quote(rollout_id)}/close", CloseRequest(attempt=attempt))
        return msgspec.json.decode(answer, type=ClosedRollout)

    def end(
        self,
        rollout_id: str,
        *,
        attempt: int | None = None,
        reward: float | None = None,
        status: EndStatus = "completed",
    ) -> EndedRollout:
        """Close the attempt, wait until all of it is stored, and accept it. For rollouts without a worker."""
        ending = EndRequest(attempt=attempt, reward=reward, status=status)
        answer = self._post(f"/rollouts/{quote(rollout_id)}/end", ending)
        return msgspec.json.decode(answer, type=EndedRollout)

    def _post(self, path: str, body: msgspec.Struct, answer_seconds: float | None = None) -> bytes:
        connection = self._kind(self._address, timeout=self._connect_seconds)
        try:
            connection.connect()
            connection.sock.settimeout(answer_seconds or self._answer_seconds)
            connection.request("POST", self._path + path, msgspec.json.encode(body), self._headers)
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
        kind = _ERRORS.get(status, UnreachableError if status >= 500 else BadInputError)
        return kind(f"gateway {self.url}: POST {path} was answered {status}: {_sentence(answer)}")


class _Fault(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Fault | str


def _sentence(answer: bytes) -> str:
    """Say what an error answer says, whether it is OpenAI-shaped or plain text."""
    try:
        error = msgspec.json.decode(answer, type=_Refusal).error
    except msgspec.DecodeError:
        return answer[:500].decode("utf-8", "replace").strip() or "(no text)"
    return error if isinstance(error, str) else error.message
