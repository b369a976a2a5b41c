"""The supervisor of the embedded Redis outlives a machine that refuses it a file, and never its directory."""

import errno
import signal

import pytest

from agent_layer.infra.redis import supervisor


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC])
def test_a_lock_that_cannot_be_opened_does_not_end_the_server(monkeypatch, tmp_path, code):
    answers = [OSError(code, "refused"), None, OSError(code, "refused"), 7]

    def try_lock(_path):
        if isinstance(answer := answers.pop(0), OSError):
            raise answer
        return answer

    monkeypatch.setattr(supervisor, "try_lock", try_lock)
    monkeypatch.setattr(supervisor, "LOCK_DESCRIPTOR", 2)  # a server inherits it

    assert supervisor.supervise(tmp_path / "users.lock", ["sleep", "600"]) == -signal.SIGTERM
    assert not answers


def test_a_server_whose_directory_was_removed_ends(monkeypatch, tmp_path):
    monkeypatch.setattr(supervisor, "LOCK_DESCRIPTOR", 2)

    assert supervisor.supervise(tmp_path / "gone" / "users.lock", ["sleep", "600"]) == -signal.SIGTERM
