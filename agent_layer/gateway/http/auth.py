"""Access by keys: the operator's key opens everything, a rollout's key its own calls, and rewards without a scorer.

SDKs and agents send a key in any of four headers, and some send two: their user's own token beside the rollout's key.
Whichever of them is a key of ours opens. The other is neither recorded nor sent on, as no header of a client is.

Keys are compared by their digests, and an unknown rollout costs a comparison, too. So the time of a refusal reveals
neither the length of a key nor whether a rollout exists.
"""

import hmac
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

from aiohttp import hdrs, web

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.refusals import RefusedError, is_google
from agent_layer.gateway.rollouts.counters import Counters
from agent_layer.gateway.rollouts.registry import RolloutRegistry
from agent_layer.gateway.rollouts.rollout import LiveRollout, new_key
from agent_layer.schema import ROLLOUT_HEADER

_KEY_HEADERS: Final = ("x-api-key", "api-key", "x-goog-api-key")
"""Where the clients of Anthropic, Azure and Google put their key; all others send a bearer token."""
_NO_KEY: Final = ("",)
_TRAJECTORY: Final = re.compile(r"/r/([^/]+)/")
_LOOPBACK = frozenset({"127.0.0.1", "::1"})


class Access:
    """Checks the keys of requests.

    Args:
        operator_keys: any of them is the operator's; several for as long as one takes the place of another.
        rollouts: whose keys open their own addresses.
        counters: count every refusal.
        metrics_key: opens the metrics, and nothing else; None: they are open to this machine.
    """

    def __init__(
        self,
        operator_keys: Iterable[str],
        rollouts: RolloutRegistry,
        counters: Counters,
        metrics_key: str | None = None,
    ) -> None:
        self._metrics = _digest(metrics_key) if metrics_key else None
        self._operators = [_digest(key) for key in operator_keys]
        self._rollouts = rollouts
        self._counters = counters
        self._nobodys_key = new_key()

    def enter(self, request: web.Request) -> LiveRollout:
        """Find the rollout that the address names, or, for the operator, a header; see ``enter_as``."""
        return self.enter_as(request)[0]

    def enter_as(self, request: web.Request) -> tuple[LiveRollout, bool]:
        """Find the rollout that the address names, or, for the operator, a header.

        Returns: the rollout, and whether one of the operator's keys opened it.

        Raises:
            RefusedError: the key opens neither the rollout nor everything, or it has expired.
            NotFoundError: the operator named a rollout that is not known. BadInputError: the operator named none.
        """
        if trajectory_id := request.match_info.get("trajectory_id"):
            return self._enter_address(trajectory_id, [_digest(key) for key in _read_keys(request)])
        self.check_operator(request)
        if trajectory_id := request.headers.get(ROLLOUT_HEADER):
            return self._rollouts.find(trajectory_id), True
        raise BadInputError(
            f"{request.path}: expected the header {ROLLOUT_HEADER} with a trajectory id, found none;"
            " use the base_url that POST /rollouts answers, or the tracer, which adds the header"
        )

    def identify(self, request: web.Request) -> LiveRollout | None:
        """Find the open rollout whose agent sends a request, by address and key; None: there is no such rollout."""
        name = _TRAJECTORY.match(request.path)
        found = self._rollouts.look(name[1]) if name else None
        if found is None or not found.is_open:
            return None
        return found if _hold(map(_digest, _read_keys(request)), [_digest(found.lease.api_key)]) else None

    def check_may_reward(self, request: web.Request, rollout: LiveRollout) -> None:
        """Raise RefusedError for a rollout's key whose task has a scorer: what the agent runs may hold the key, too."""
        if rollout.terms.scorer is not None and not self.is_operator(request):
            raise RefusedError(
                403,
                "reward_refused",
                f"rollout {rollout.trajectory_id}: the scorer {rollout.terms.scorer!r} of its task alone rewards it, so"
                " a reward with the rollout's key is refused; leave it out, or give the task 'scorer': 'agent' if you"
                " trust the agent",
            )

    def is_operator(self, request: web.Request) -> bool:
        """Whether one of the operator's keys came with a request."""
        return _hold(map(_digest, _read_keys(request)), self._operators)

    def check_operator(self, request: web.Request) -> None:
        """Raise RefusedError when the key is not one of the operator's."""
        if not self.is_operator(request):
            raise self._refusal(
                "operator",
                "gateway: only the operator may do this, and this key is not the operator's; set AGENT_LAYER_API_KEY to"
                " the key that the gateway was started with",
            )

    def check_scraper(self, request: web.Request) -> None:
        """Raise RefusedError for a client that may not read the metrics."""
        if self._metrics is None and request.remote in _LOOPBACK:
            return
        if self._metrics is None or not _hold(map(_digest, _read_keys(request)), [self._metrics]):
            self.check_operator(request)

    def _enter_address(self, trajectory_id: str, keys: Sequence[bytes]) -> tuple[LiveRollout, bool]:
        found = self._rollouts.look(trajectory_id)
        is_its_key = _hold(keys, [_digest(found.lease.api_key if found else self._nobodys_key)])
        if _hold(keys, self._operators):
            return self._rollouts.find(trajectory_id), True
        if found is None or not is_its_key:
            raise self._refusal("unknown", "gateway: this key is not the rollout's; use the one it was given")
        if found.lease.end_of_key is not None and self._rollouts.now() >= found.lease.end_of_key:
            raise self._refusal("expired", f"rollout {trajectory_id}: its key has expired; end the agent")
        return self._rollouts.find(trajectory_id), False

    def _refusal(self, reason: str, sentence: str) -> RefusedError:
        self._counters.add("refused_keys", reason=reason)
        return RefusedError(401, "invalid_api_key", sentence)


def _read_keys(request: web.Request) -> Sequence[str]:
    """Return the keys that a request sends, at least one."""
    headers = request.headers
    sent = [key for name in _KEY_HEADERS if name in headers for key in headers.getall(name)]
    sent += request.query.getall("key", ()) if request.query_string and is_google(request.path) else ()
    for value in headers.getall(hdrs.AUTHORIZATION, ()):
        scheme, _, key = value.strip().partition(" ")
        sent += [key] if scheme.lower() == "bearer" else []
    return [key.strip() for key in sent] or _NO_KEY


def _hold(keys: Iterable[bytes], digests: Sequence[bytes]) -> bool:
    """Whether one of the keys' digests is one of these; all are compared, in the same time."""
    return sum([hmac.compare_digest(key, one) for key in keys for one in digests]) > 0


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
