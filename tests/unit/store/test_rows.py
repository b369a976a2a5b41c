"""A page of trajectories on a terminal: whole cells, and the names of columns that do not fit."""

import pytest

from agent_layer.cli.ui.trajectory_text import print_rows


@pytest.mark.parametrize("width", [60, 80, 120, 240])
def test_a_page_of_trajectories_shows_whole_cells_and_names_what_it_has_no_room_for(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    row = {
        "trajectory_id": "t" * 24,
        "run": "nightly",
        "task_id": "a-task",
        "status": "completed",
        "accepted": True,
        "reward": 0.5,
        "num_steps": 3,
        "policy_min": 1,
        "policy_max": 2,
        "agents": ["one", "other"],
        "findings": [],
        "engines": ["http://127.0.0.1:8000"],
        "started_at": "2026-11-22T11:37:21.496Z",
    }
    print_rows([row])
    head, cells, *notes = capsys.readouterr().out.splitlines()

    assert "t" * 24 in cells
    assert "0.5" in cells.split()
    assert "…" not in head + cells
    named = " ".join(notes)
    for column, cell in (("status", "completed"), ("agents", "one, other"), ("started_at", row["started_at"])):
        assert (cell in cells) != (column in named)
