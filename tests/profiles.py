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


def num_examples(in_long: int, in_default: int | None = None) -> int:
    """Return the number of examples that the profile in use allows, for tests that try more or fewer than the usual.

    Args:
        in_long: with ``--hypothesis-profile=long``.
        in_default: without it; None: the usual share of ``in_long``.
    """
    share = hypothesis.settings().max_examples / _LONG
    return in_default if in_default is not None and share < 1 else max(1, int(in_long * share))
