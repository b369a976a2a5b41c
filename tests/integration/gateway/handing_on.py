"""This file holds how tests of the gateway pass an attempt from one holder to the next."""

ATTEMPT = {"task_id": "t", "rollout_id": "r", "attempt": 0, "owner": "worker"}


async def open_attempt(house, **fields):
    return await house.open(**{**ATTEMPT, **fields})


async def mark(house, opened):
    """Give the checkpoint."""
    status, told = await house.post("/rollouts/r/mark", {"attempt": 0, "key": opened["api_key"]})
    assert status == 200, told
    return {"calls": told["calls"], "seconds": told["seconds"]}


async def resume(house, checkpoint, **fields):
    """Give (status, answer)."""
    return await house.post("/rollouts", {**ATTEMPT, "resume": {**checkpoint, "worker": "w-2"}, **fields})
