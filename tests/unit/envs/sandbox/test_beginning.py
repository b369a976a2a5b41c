"""What changed in a box is found by time, whatever is done to the clock."""

import random

from envs.sandbox.guest.server import Beginning


def test_no_change_is_missed_where_the_clock_is_set_and_none_of_the_image_is_found_where_it_is_not():
    rng = random.Random(0)
    for _ in range(300):
        is_set = rng.random() < 0.7
        steady, offset = 1000.0, 5e8
        beginning = Beginning(lambda: steady + offset, lambda: steady)  # noqa: B023  # read in this round
        image, changed = steady + offset - 1, list[float]()
        for _ in range(20):
            steady += rng.uniform(0, 100)
            offset += rng.choice([-1e7, -50, 0, 50, 1e7]) if is_set else 0
            changed.append(steady + offset)
            beginning.read()
        assert beginning.read() <= min(changed)
        assert is_set or beginning.read() > image
