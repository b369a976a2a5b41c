"""What ``train`` prints of steps and restarts: words of others as they are."""

import pytest

from agent_layer.health import Restart
from trainer_adapter.cli import _show_steps

WORDS = "RuntimeError: [/__w/gloo/tcp/pair.cc:537] Read error [::1]:22919, [bold]not[/bold] [red"


def test_brackets_in_the_cause_of_a_restart_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]):
    restart = Restart(at=0.0, what="run", why=WORDS, from_step=1, number=1, most=3)

    _show_steps()(restart)

    assert capsys.readouterr().out == f"{restart}\n"
    assert WORDS in str(restart)
