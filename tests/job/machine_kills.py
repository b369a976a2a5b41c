"""Machines of a joined Ray cluster, killed in drawn phases of training runs; each kill becomes a row of a page.

    python tests/job/kill_machines.py DIRECTORY [--seed S] [--kills K]

A seed draws the order of all kills: mode, phase, machine, and whether the machine comes back. Those without a row are
done, K in one run of one mode, so several calls on several days collect all of them. A kill has ended well where the
run went on from its checkpoint by itself, or, because the machine stayed away, ended with a sentence that names what is
missing. Each run must have trained every step once at its end, and nothing twice.
"""

import os
import random
import re
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
from redis import Redis

from agent_layer.engines import newest_number, open_engine_registry
from agent_layer.errors import AgentLayerError
from agent_layer.health.progress import progress_path, read_progress
from agent_layer.infra import Keys, open_redis
from agent_layer.settings import Settings
from agent_layer.store import list_batches
from trainer_adapter.config import ClusterConfig, RetentionConfig, RolloutConfig, TrainConfig
from trainer_adapter.demo.job import RECIPE, make_config, write_tasks
from trainer_adapter.start import Job, run_job

from ..waiting import scaled, wait_until
from .ray_machines import TOKEN, RayMachines, ray_machines
from .ray_runs import RUN, check_trained, count_steps, list_restarts

PAGE = Path(__file__).parents[2] / "docs/internals/cluster-kills.md"
PHASES = ("sample", "update", "push", "checkpoint")
MODES = ("sync", "colocate_async", "separate_async")
MACHINES = ("head", "other")
_WAIT_SECONDS = 60.0
"""``cluster.wait_seconds``, in which a machine that comes back has done so."""
_HEAD_SENTENCE = r"ray at 127\.0\.0\.2:\d+: no cluster answers"
_OTHER_CAUSE = "machine 127.0.0.3 has ended"
_OTHER_SENTENCE = (
    r"Ray cluster: expected \d places? of 1 GPU and \d CPUs on one machine each, found \d free on 1 machine"
)


class Kill(NamedTuple):
    """One machine, killed in one phase."""

    mode: str
    phase: str
    machine: str
    """``head``, with Ray's own state, or ``other``."""
    comes_back: bool
    """Whether the machine starts again by itself."""

    @property
    def name(self) -> str:
        """Return it as the page has it."""
        return f"{self.mode} | {self.phase} | {self.machine} | {'comes back' if self.comes_back else 'stays away'}"


class Outcome(NamedTuple):
    """What a run made of a kill."""

    kill: Kill
    had_trainer: bool
    """Whether the trainer, with the rows, was on the machine."""
    restarts: int
    sentence: str
    """Of the run's end; empty: it went on by itself."""
    seconds: float
    """From the kill to the next step."""
    causes: str = ""
    """Of the restarts."""

    @property
    def fault(self) -> str | None:
        """Return why it is not right; None: it is."""
        if self.kill.comes_back:
            if self.sentence or not self.restarts:
                return f"it ended: {self.sentence}" if self.sentence else "no restart is recorded"
            is_seen = self.kill.machine == "other" and not self.had_trainer  # by the trainer, which outlives it
            return f"found the cause {self.causes!r}" if is_seen and _OTHER_CAUSE not in self.causes else None
        expected = _HEAD_SENTENCE if self.kill.machine == "head" else _OTHER_SENTENCE
        return None if re.search(expected, self.sentence) else f"expected {expected!r}, found {self.sentence!r}"


def draw_kills(seed: int) -> list[Kill]:
    """Return each mode, phase and machine once, in the order of a seed; one machine in four stays away."""
    rng = random.Random(seed)
    places = [*product(MODES, PHASES, MACHINES)]
    rng.shuffle(places)
    away = {number for start in range(0, len(places), 4) for number in [start + rng.randrange(4)]}
    return [Kill(*place, comes_back=number not in away) for number, place in enumerate(places)]


def choose_kills(seed: int, rows: str, number: int) -> list[Kill]:
    """Return the next kills of one mode that a page has no row of."""
    left = [kill for kill in draw_kills(seed) if f"| {seed} | {kill.name} |" not in rows]
    return [kill for kill in left if kill.mode == left[0].mode][:number]  # none left: an empty list


def configure(home: Path, mode: str, steps: int, address: str) -> TrainConfig:
    """The game of the demo on two machines, with a checkpoint after each step; writes its model and tasks."""
    if not (home / "model").exists():
        subprocess.run([sys.executable, "-m", "trainer_adapter.demo.model", home / "model", "0"], check=True)
        write_tasks(home / "tasks.jsonl")
    cluster = ClusterConfig(
        mode=mode,  # pyright: ignore[reportArgumentType]  # one of MODES
        nodes=2,
        max_model_len=64,
        address=address,
        wait_seconds=scaled(_WAIT_SECONDS),
    )
    rollouts = RolloutConfig(group_size=RECIPE.group_size, max_staleness=int(mode != "sync"))
    config = make_config(home, RUN, 0, steps)
    return msgspec.structs.replace(
        config, cluster=cluster, rollouts=rollouts, keep=RetentionConfig(checkpoint_steps=1, num_checkpoints=2)
    )


def find_phase(settings: Settings, redis: Redis) -> str:
    """Return what the trainer does now, as far as files and Redis show it."""
    done, keys = read_progress(progress_path(settings, RUN)), Keys(settings.namespace)
    if (settings.dir / "checkpoints" / RUN / "pending").exists():
        return "checkpoint"
    newest, served = newest_number(redis, keys, RUN) or 0, done[-1].policy_version if done else 0
    if newest > served:
        engines = open_engine_registry(settings, redis).engines()
        is_served = all((one.state, one.version) == ("serving", newest) for one in engines)
        return "checkpoint" if is_served else "push"
    return "update" if len(list_batches(redis, keys, RUN)) > len(done) else "sample"


def has_gone_on(settings: Settings, number: int) -> bool:
    """Whether a step was done after the last restart, of more than this many: that of a kill may end without it."""
    restarts, done = list_restarts(settings)[number:], read_progress(progress_path(settings, RUN))
    return bool(restarts) and done[-1].ended_at > restarts[-1].at


_MISSED = "missed"
_TRAINER = "ray::TaskRunnerV1"


class _Killer:
    """Kills what was drawn, each kill in a step of its own, while a run is looked at."""

    def __init__(self, settings: Settings, redis: Redis, machines: RayMachines, kills: Sequence[Kill]) -> None:
        self._settings, self._redis, self._machines = settings, redis, machines
        self.left = list(kills)
        self.outcomes: list[Outcome] = []
        self._killed: tuple[Kill, bool, float, int] | None = None
        """The last kill, whether it hit the trainer, when, and how many restarts there were."""
        self._is_back = True

    def look(self) -> None:
        """Kill when the phase has come; let the machine come back; see what became of the kill before."""
        step = count_steps(self._settings)
        if self._killed is not None:
            kill, _, at, number = self._killed
            if kill.comes_back and not self._is_back and time.time() - at > 3:  # wait: a machine boots
                self._machines.mend()
                self._is_back = True
            if has_gone_on(self._settings, number):
                self._end("")
            return
        if self.left and step > len(self.outcomes):
            self._wait_for_phase(step)

    def finish(self) -> None:
        """Take the end of a run that has all steps: a kill that it did not notice has no restart."""
        if self._killed is not None:
            self._end("")

    def give_up(self, sentence: str) -> bool:
        """Take the end of a run; return whether it goes on when the machine is back."""
        if self._killed is None or self._killed[0].comes_back:
            return False
        self._end(sentence)
        self._machines.mend()
        return True

    def _wait_for_phase(self, step: int) -> None:
        kill = self.left[0]
        seen = wait_until(lambda: self._find(kill.phase, step), 600)
        if seen == _MISSED:
            return  # the next step has one, too
        number = len(list_restarts(self._settings))
        victim = self._machines.machines[0 if kill.machine == "head" else 1]
        has_trainer = victim.runs(_TRAINER)
        victim.lose_power()
        _say(f"killed {kill.name} after step {step}{', with the trainer' if has_trainer else ''}")
        self._killed, self._is_back = (kill, has_trainer, time.time(), number), False
        del self.left[0]

    def _find(self, phase: str, step: int) -> str | None:
        if count_steps(self._settings) > step:
            return _MISSED
        return phase if find_phase(self._settings, self._redis) == phase else None

    def _end(self, sentence: str) -> None:
        assert self._killed is not None
        kill, had_trainer, at, number = self._killed
        restarts = list_restarts(self._settings)[number:]
        causes = ", ".join(one.why for one in restarts)
        self.outcomes.append(Outcome(kill, had_trainer, len(restarts), sentence, time.time() - at, causes))
        self._killed = None
        _say(f"{kill.name}: {sentence or [str(one) for one in restarts]}")


def train_through(home: Path, machines: RayMachines, kills: Sequence[Kill]) -> list[Outcome]:
    """Train on the machines while they are killed; compare what was trained at the end.

    Args:
        home: of the run, its model and its tasks.
        machines: two, with two GPUs each where engines are separate.
        kills: of one mode.
    """
    os.environ.update(TOKEN)
    settings, num_steps = Settings(dir=home / "data", run=RUN), 2 * len(kills) + 1
    job = Job(
        config=configure(home, kills[0].mode, num_steps, machines.address), target=RECIPE.target, slots=8, on_ray=True
    )
    with open_redis(settings) as redis:
        killer = _Killer(settings, redis, machines, kills)
        while True:
            try:
                with run_job(settings, job) as running:
                    running.wait(killer.look)
                killer.finish()
                break
            except AgentLayerError as error:
                if not killer.give_up(str(error)):
                    raise
    check_trained(settings, num_steps)
    assert not killer.left, f"phases that were not seen: {killer.left}"
    return killer.outcomes


def _rows(seed: int, outcomes: Sequence[Outcome]) -> Iterator[str]:
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    for one in outcomes:
        fault = one.fault
        ended = "right sentence" if one.sentence else "went on"
        outcome = "**wrong**" if fault else ended
        there = "yes" if one.had_trainer else "no"
        yield f"| {seed} | {one.kill.name} | {there} | {outcome} | {one.restarts} | {one.seconds:.0f} | {day} |\n"


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """Do the next kills, and append their rows to the page; return 1 where one has ended wrongly."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, help="of the run; a new one")
    parser.add_argument("--seed", type=int, default=47, help="of the order of kills")
    parser.add_argument("--kills", type=int, default=3, help="in this run, which has two steps for each")
    parser.add_argument("--page", type=Path, default=PAGE, help="whose rows say which kills were done")
    found = parser.parse_args(arguments)
    if not (kills := choose_kills(found.seed, found.page.read_text(), found.kills)):
        say(f"seed {found.seed}: all kills have a row; choose another --seed")
        return 0
    num_gpus = 2 if kills[0].mode == "separate_async" else 1
    with (
        TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as home,
        ray_machines(Path(home), 2, num_gpus=num_gpus, num_cpus=12) as machines,
    ):
        outcomes = train_through(found.directory, machines, kills)
    with found.page.open("a") as page:
        page.writelines(_rows(found.seed, outcomes))
    faults = [f"{one.kill.name}: {one.fault}" for one in outcomes if one.fault]
    for fault in faults:
        say(fault)
    return int(bool(faults))


def _say(what: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {what}", flush=True)  # noqa: T201  # a program of the command line
