"""What agents read and wrote can be read by this user only, whatever the umask says."""

import os
import sys

import pytest

from agent_layer.infra import make_private


@pytest.fixture
def _generous_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_generous_umask")
async def test_segments_logs_and_their_directories_are_private(harness, task):
    await harness.run([sys.executable, "-c", "print(1)"], task("one"))

    made = [harness.settings.dir, *harness.settings.dir.rglob("*")]
    modes = {path: path.stat().st_mode & 0o777 for path in made}
    segments = [path for path in made if path.is_file() and "objects" in path.parts]

    assert segments
    assert not {path: oct(mode) for path, mode in modes.items() if mode & 0o077}


def test_a_directory_that_exists_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o755)

    make_private(tmp_path / "new" / "below")

    modes = [path.stat().st_mode & 0o777 for path in (tmp_path, tmp_path / "new", tmp_path / "new" / "below")]
    assert modes == [0o755, 0o700, 0o700]
