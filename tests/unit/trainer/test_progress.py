"""The part of the elapsed time that counts as the agent's own."""

from envs.progress import Progress


class Clock:
    """A clock that tests step."""

    seconds = 0.0

    def __call__(self):
        return self.seconds


def test_an_attempt_that_waits_for_a_process_is_neither_running_nor_quiet():
    clock = Clock()
    progress = Progress(lambda: None, clock)
    clock.seconds = 2.0

    with progress.waiting():
        clock.seconds = 60.0
        assert (progress.ran_seconds, progress.quiet_seconds) == (2.0, 0.0)
    clock.seconds = 61.0

    assert (progress.ran_seconds, progress.quiet_seconds) == (3.0, 1.0)
