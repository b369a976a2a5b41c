"""How many examples tests of properties try: a quarter by default, all of them with ``--hypothesis-profile=long``."""

import hypothesis

__all__ = ["num_examples", "register_profiles"]

_LONG = 100


def register_profiles() -> None:
    """Make both profiles known, and the short one the default.

    Neither has a deadline: a machine that runs tests is busy with other things too, so the duration of an example says
    nothing about the code.
    """
    too_slow = [hypothesis.HealthCheck.too_slow]
    common = hypothesis.settings(deadline=None, suppress_health_check=too_slow, print_blob=True)
    hypothesis.settings.register_profile("default", common, max_examples=_LONG // 4)
    hypothesis.settings.register_profile("long", common, max_examples=_LONG)
    hypothesis.settings.load_profile("default")


def num_examples(in_long: int) -> int:
    """Return the share of examples that the profile in use allows, for tests that try more or fewer than the usual."""
    return max(1, in_long * hypothesis.settings().max_examples // _LONG)
