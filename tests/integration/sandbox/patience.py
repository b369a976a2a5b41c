"""Boxes with more than a second to say that they are alive: on a crowded machine they need it."""

_TRIES = 60


def make_patient(kind):
    """Have a kind make such boxes; returns it. A box that has ended says so at once, every time."""
    start = kind.start

    async def start_patient(spec, *, owner):
        box = await start(spec, owner=owner)
        is_alive = box.is_alive

        async def is_alive_at_last():
            for _ in range(_TRIES):
                if await is_alive():
                    return True
            return False

        box.is_alive = is_alive_at_last
        return box

    kind.start = start_patient
    return kind
