"""Rollouts for trainers that are not ours: their loop decides when, ours plays, records and hands over whole rows."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "openenv": "make_trace read_rows",
        "prime_rl": "PrimeRlFeed",
        "rounds": "GroupRequest RoundPlayer leave_out",
        "trl": "TrlRollouts",
        "trl_async": "AsyncTrlRollouts",
    },
)
