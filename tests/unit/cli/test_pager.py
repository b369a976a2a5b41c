"""A trajectory on a terminal: colours, folds, a pager; what a model wrote controls no terminal."""

import os
import pty
import sys

import pytest
from rich.cells import cell_len

from agent_layer.cli.ui.output import defuse
from agent_layer.cli.ui.pager import fold_block, print_blocks
from agent_layer.cli.ui.trajectory_text import Block

HOSTILE = "\x1b]0;mine\x07\x1b[2Jbye\x9b31m\r"


def test_what_a_model_wrote_controls_no_terminal(capsys):
    print_blocks([Block([HOSTILE, "\tkept"], "assistant")])

    printed = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b", "\r"} & set(printed)
    assert "␛]0;mine␇␛[2Jbye" in printed
    assert printed.endswith("kept\n")
    assert cell_len(defuse(HOSTILE)) == len(HOSTILE)


def test_elsewhere_than_on_a_terminal_it_is_whole_and_plain(capsys):
    lines = [f"  tool: {number} " + "x" * 300 for number in range(50)]

    print_blocks([Block(["step 0"], "title"), Block(lines, "tool")])

    assert capsys.readouterr().out.splitlines() == ["step 0", *lines]


@pytest.mark.parametrize(
    ("lines", "shown", "expected"),
    [
        (["x"] * 14, ["x"] * 12, "2 lines, 2 more characters"),
        (["x" * 1600], ["x" * 1500], "100 more characters"),
        (["x" * 1499, "yy"], ["x" * 1499, "y"], "1 more character"),
    ],
)
def test_a_fold_says_how_much_it_hides(lines, shown, expected):
    assert fold_block(Block(lines, "tool")).lines == [*shown, f"    … {expected}: --unfold shows all"]


@pytest.mark.parametrize("kind", ["assistant", "title", "reward", "plain"])
def test_what_the_policy_said_is_never_folded(kind):
    block = Block(["x" * 4000] * 50, kind)

    assert fold_block(block) == block


def test_a_terminal_gets_colours_and_folds_through_its_pager(tmp_path, monkeypatch):
    """In a real terminal; the pager is a program that notes what it was given."""
    got = tmp_path / "got"
    pager = tmp_path / "pager"
    pager.write_text(f"#!{sys.executable}\nimport sys\nopen({str(got)!r}, 'w').write(sys.stdin.read())\n")
    pager.chmod(0o755)
    monkeypatch.setenv("PAGER", str(pager))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    program = (
        "from agent_layer.cli.ui.pager import print_blocks\n"
        "from agent_layer.cli.ui.trajectory_text import Block\n"
        "print_blocks([Block(['step 0'], 'title'), Block(['  tool: x'] * 40, 'tool')])\n"
    )

    status = pty.spawn([sys.executable, "-c", program], lambda fd: os.read(fd, 1024))

    text = got.read_text()
    assert os.waitstatus_to_exitcode(status) == 0
    assert "\x1b[1;34mstep 0" in text
    assert text.count("tool: x") == 12
    assert "28 lines, 252 more characters: --unfold shows all" in text
