"""Restart policy: how long to wait before a process that ended is started again, and when to give up."""

from dataclasses import dataclass

from agent_layer.infra.backoff import Backoff

_NO_DELAY = Backoff(0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """Rules for one kind of process."""

    healthy_seconds: float
    """A process that was ready and ran at least this long resets the back-off."""
    backoff: Backoff = _NO_DELAY
    """Delay before each start after short runs in a row."""
    max_short: int | None = None
    """Short runs in a row after which the process is not started again; None: no limit."""
    max_unready: int | None = None
    """Exits in a row before the process was ready after which it is not started again; None: no limit."""


@dataclass
class RestartHistory:
    """Exits of the processes in one slot."""

    policy: RestartPolicy
    num_short: int = 0
    """Short runs in a row."""
    num_unready: int = 0
    """Exits in a row of processes that were never ready."""

    def record_exit(self, lived_seconds: float, *, was_ready: bool = True) -> None:
        """Count an exit that was not asked for."""
        is_healthy = was_ready and lived_seconds >= self.policy.healthy_seconds
        self.num_short = 0 if is_healthy else self.num_short + 1
        self.num_unready = 0 if was_ready else self.num_unready + 1

    @property
    def delay_seconds(self) -> float:
        """Delay before the next start."""
        return self.policy.backoff.delay_seconds(self.num_short)

    @property
    def must_give_up(self) -> bool:
        """Whether another start would most likely end as the last ones did."""
        limits = (self.num_short, self.policy.max_short), (self.num_unready, self.policy.max_unready)
        return any(most is not None and number >= most for number, most in limits)
