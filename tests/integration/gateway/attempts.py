"""Handover of an attempt from one holder to the next, for tests of the gateway."""

ATTEMPT = {"task_id": "t", "rollout_id": "r", "attempt": 0, "owner": "worker"}


async def open_attempt(gateway, **fields):
    return await gateway.open(**{**ATTEMPT, **fields})


async def mark(gateway, opened):
    """Return the checkpoint."""
    status, answer = await gateway.post("/rollouts/r/mark", {"attempt": 0, "key": opened["api_key"]})
    assert status == 200, answer
    return {"calls": answer["calls"], "seconds": answer["seconds"]}


async def resume(gateway, checkpoint, **fields):
    """Return (status, answer)."""
    return await gateway.post("/rollouts", {**ATTEMPT, "resume": {**checkpoint, "worker": "w-2"}, **fields})
