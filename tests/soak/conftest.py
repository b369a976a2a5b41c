"""Work that is killed at each of its points in turn, as a fixture."""

import pytest

from .kill_points import run_until_killed


@pytest.fixture
def killed_at(settings, redis, tmp_path):
    """``killed_at(number, work)``: run ``work(redis, objects)`` until its n-th point; the point, or None: it ended."""

    def run(number, work):
        return run_until_killed(number, work, redis, settings.dir / "objects", tmp_path / "diary")

    return run
