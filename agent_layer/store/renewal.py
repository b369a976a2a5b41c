"""This file holds how a member shows that it lives while nobody asks it for groups: a thread, ended with its claims."""

import logging
import weakref
from threading import Event, Thread

from redis.exceptions import RedisError

from agent_layer.store.claims import Claims

__all__ = ["keep_renewed"]

log = logging.getLogger(__name__)

_PER_CLAIM = 3
"""Renewals in the time after which claims lapse: two may fail."""


def keep_renewed(claims: Claims) -> None:
    """Renew claims for as long as anything in this process refers to them, or until another process has the name."""
    ended = Event()
    weakref.finalize(claims, ended.set)
    seconds = claims.claim_seconds / _PER_CLAIM
    Thread(target=_renew, args=(weakref.ref(claims), ended, seconds), name="renew-claims", daemon=True).start()


def _renew(reference: "weakref.ref[Claims]", ended: Event, seconds: float) -> None:
    while not ended.wait(seconds):
        if not _renew_once(reference):
            return


def _renew_once(reference: "weakref.ref[Claims]") -> bool:
    claims = reference()
    if claims is None:
        return False
    try:
        return claims.renew()
    except RedisError as error:
        log.warning("claims not renewed, they lapse in %g s error=%s", claims.claim_seconds, error)
        return True
