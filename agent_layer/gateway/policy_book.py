"""This file holds the registration of policy versions before anything is sampled by them."""

import asyncio
import time

from redis import Redis

from agent_layer.errors import EngineError
from agent_layer.gateway.flight import Log
from agent_layer.schema.policy import PolicyVersion
from agent_layer.store.engines import Engine
from agent_layer.store.keys import Keys
from agent_layer.store.policies import get_policy, register_policy

__all__ = ["PolicyBook"]


class PolicyBook:
    """Versions that are known to be registered. A trainer registers its own; version 0 of a run has no other author."""

    def __init__(self, redis: Redis, keys: Keys, log: Log) -> None:
        self._redis = redis
        self._keys = keys
        self._log = log
        self._known: set[tuple[str, int]] = set()

    async def ensure(self, run: str, engine: Engine) -> None:
        """Register for this run what the engine serves, unless somebody did.

        Raises: EngineError: the run has other weights under this number, and the engine is not the run's own.
        """
        if (run, engine.version) in self._known:
            return
        policy = PolicyVersion(run=run, number=engine.version, location=engine.location, created_at=time.time())
        await asyncio.to_thread(self._register, policy, engine)
        self._known.add((run, engine.version))

    def _register(self, policy: PolicyVersion, engine: Engine) -> None:
        register_policy(self._redis, self._keys, policy, self._log.append)
        known = get_policy(self._redis, self._keys, policy.run, policy.number)
        if known and engine.run != policy.run and known.location != engine.location:
            raise EngineError(
                f"engine {engine.url}: expected weights {known.location} as version {policy.number} of run"
                f" {policy.run}, found {engine.location} of run {engine.run}; start an engine for run {policy.run}"
            )
