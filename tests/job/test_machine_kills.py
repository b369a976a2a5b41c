"""A machine of a joined cluster dies in a phase of training: the run goes on, or says what is missing.

``kill_machines.py`` does more of them, by seed.
"""

import tempfile
from pathlib import Path

import msgspec
import pytest

from agent_layer.health import Restart, append_restart, restarts_path
from agent_layer.health.progress import append_progress, progress_path
from agent_layer.settings import Settings

from ..unit.health.reports import report
from .machine_kills import MACHINES, MODES, PHASES, Kill, Outcome, choose_kills, draw_kills, has_gone_on, train_through
from .ray_machines import TOKEN, ray_machines
from .ray_runs import RUN


def test_a_seed_draws_each_place_once_and_one_machine_in_four_stays_away():
    kills = draw_kills(3)

    assert {kill[:3] for kill in kills} == {(m, p, n) for m in MODES for p in PHASES for n in MACHINES}
    assert len(kills) == 24
    assert sum(not kill.comes_back for kill in kills) == 6
    assert (draw_kills(3), draw_kills(4) != kills) == (kills, True)


def test_kills_with_a_row_are_not_done_again():
    page, done = "", list[Kill]()
    while len(done) < 24:
        kills = choose_kills(5, page, 3)
        assert len({kill.mode for kill in kills}) == 1
        done += kills
        page += "".join(f"| 5 | {kill.name} | no | went on | 1 | 60 | 2026-11-29 |\n" for kill in kills)

    assert sorted(done) == sorted(draw_kills(5))
    assert choose_kills(5, page, 3) == []
    assert choose_kills(6, page, 1) == draw_kills(6)[:1]


@pytest.mark.parametrize(
    ("machine", "comes_back", "restarts", "sentence", "is_right"),
    [
        ("other", True, 1, "", True),
        ("other", True, 0, "", False),
        ("head", True, 1, "", True),
        ("other", True, 1, "ray at 127.0.0.2:6: no cluster answers", False),
        ("head", False, 1, "trainer on Ray: ray at 127.0.0.2:6: no cluster answers (refused)", True),
        ("head", False, 1, "trainer on Ray: expected it to finish, but it died", False),
        (
            *("other", False, 1),
            "Ray cluster: expected 2 places of 1 GPU and 3 CPUs on one machine each, found 1 free on 1 machine: a",
            True,
        ),
        (
            *("other", False, 1),
            "Ray cluster: expected 2 places of 1 GPU and 3 CPUs on one machine each, found 2 free on 2 machines: a",
            False,
        ),
        ("other", False, 1, "", False),
    ],
)
def test_a_sentence_is_right_only_where_it_names_what_is_missing(
    *, machine: str, comes_back: bool, restarts: int, sentence: str, is_right: bool
):
    kill = Kill("sync", "push", machine, comes_back)
    causes = "machine 127.0.0.3 has ended; the whole trainer starts again"
    outcome = Outcome(kill, had_trainer=False, restarts=restarts, sentence=sentence, seconds=60.0, causes=causes)

    assert (outcome.fault is None) == is_right


@pytest.mark.parametrize(
    ("machine", "had_trainer", "is_right"), [("other", False, False), ("other", True, True), ("head", False, True)]
)
def test_a_trainer_that_outlives_a_machine_must_name_it(*, machine: str, had_trainer: bool, is_right: bool):
    kill = Kill("sync", "push", machine, comes_back=True)
    outcome = Outcome(kill, had_trainer, restarts=1, sentence="", seconds=60.0, causes="gloo: connection reset by peer")

    assert (outcome.fault is None) == is_right


def test_a_run_has_gone_on_with_a_step_behind_a_restart_and_not_with_one_that_a_dead_machine_did_not_stop(
    tmp_path: Path,
):
    settings = Settings(dir=tmp_path, run=RUN)

    def end_step(step: int, at: float) -> bool:
        append_progress(progress_path(settings, RUN), msgspec.structs.replace(report(step), ended_at=at))
        return has_gone_on(settings, number=0)

    assert [end_step(1, at=1.0), end_step(2, at=2.0)] == [False, False]
    restart = Restart(at=3.0, what="run", why="machine 127.0.0.3 has ended", from_step=2, number=1, most=3)
    append_restart(restarts_path(settings, RUN), restart)
    assert not has_gone_on(settings, number=0)
    assert end_step(3, at=4.0)
    assert not has_gone_on(settings, number=1)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other
@pytest.mark.parametrize(
    "kill",
    [Kill("sync", "push", "other", comes_back=True), Kill("colocate_async", "checkpoint", "head", comes_back=False)],
    ids=["goes-on", "names-what-is-missing"],
)
def test_a_run_outlives_a_machine_that_dies(kill: Kill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in TOKEN.items():
        monkeypatch.setenv(name, value)
    with (
        tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as home,
        ray_machines(Path(home), 2, num_gpus=1, num_cpus=12) as machines,
    ):
        (outcome,) = train_through(tmp_path, machines, [kill])

    assert outcome.fault is None
