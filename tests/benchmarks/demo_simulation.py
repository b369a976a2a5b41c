"""The demo's training without engine, workers and store: how often do its settings learn, over many seeds?

``python tests/benchmarks/demo_simulation.py --seeds 0-19 --set rollouts.max_staleness=1``. It takes the demo's own
model, game, rewards and configuration, the trainer's own rules (positions, curriculum, start versions), and the trainer
itself. Only the rollouts are simulated: a tick samples the next guess of each game that has a slot. A run takes half a
minute instead of five, so that settings can be judged by how often they fail.
"""

# transformers is untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
import multiprocessing
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean, median
from tempfile import TemporaryDirectory

import msgspec
import torch
from demo_runs import GOAL

from agent_layer.schema import TrainingSample
from agent_layer.schema.record import Logprobs, TokenIds
from envs.tasksets import HIGHEST, REWARDS, Game, compare
from envs.tasksets.guess_number.game import MAX_GUESSES
from trainer_adapter.algorithms import resolve_algorithm
from trainer_adapter.config import TrainConfig
from trainer_adapter.data import plan_start_versions, select_batch
from trainer_adapter.data.advantages import GroupSamples, RolloutSamples
from trainer_adapter.demo.cli import STEPS
from trainer_adapter.demo.job import RECIPE, make_config
from trainer_adapter.demo.model import NUMBERS, SPECIAL, WORDS, make_model, write_model
from trainer_adapter.loop.feed import update_rates
from trainer_adapter.verl import EmbeddedTrainer

_TOKENS = {word: token for token, word in enumerate(SPECIAL + WORDS + NUMBERS)}
_GUESSES = {_TOKENS[number]: int(number) for number in NUMBERS}
_UPDATE_TICKS = 5
"""Guesses of each slot during an update; with this, ``max_staleness`` 1 gives the mean staleness of real runs, 0.6."""
_SAMPLING_SEEDS = 1_000_003


@dataclass
class _Rollout:
    """One game, as it is played."""

    hidden: int
    guesses: tuple[int | None, ...] = ()
    response: list[int] = field(default_factory=list[int])
    mask: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    versions: list[int] = field(default_factory=list[int])
    is_over: bool = False

    @property
    def reward(self) -> float:
        scores = Game(self.hidden, self.guesses).scores()
        return sum(weight * scores[name] for name, weight in REWARDS.items())

    def add(self, token: int, logprob: float, version: int) -> None:
        """Add a guess, and the reply where the game goes on."""
        self._append(token, 1, logprob, version)
        self.guesses += (_GUESSES.get(token),)
        reply = compare(self.guesses[-1], self.hidden)
        self.is_over = reply in ("found", "foul") or len(self.guesses) >= MAX_GUESSES
        if not self.is_over:
            self._append(_TOKENS[reply], 0, 0.0, -1)

    def _append(self, token: int, mask: int, logprob: float, version: int) -> None:
        self.response.append(token)
        self.mask.append(mask)
        self.logprobs.append(logprob)
        self.versions.append(version)

    def sample(self) -> TrainingSample:
        return TrainingSample(
            sample_id="s",
            trajectory_id="t",
            run="simulation",
            task_id=f"guess-{self.hidden}",
            prompt_ids=TokenIds([_TOKENS["guess"]]),
            response_ids=TokenIds(self.response),
            loss_mask=TokenIds(self.mask),
            logprobs=Logprobs(self.logprobs),
            versions=TokenIds(self.versions),
        )


@dataclass
class _Group:
    """The games of one position."""

    position: int
    start: int
    hidden: int
    rollouts: list[_Rollout]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one simulated run reached."""

    seed: int
    success: float
    """Share of hidden numbers found, over the last five updates."""
    success_by_number: dict[int, float]
    curve: list[float]
    """Success of every tenth update."""
    opening: int | None
    """The most frequent first guess at the end."""


class Simulation:
    """One run."""

    def __init__(self, config: TrainConfig, sampling_seed: int) -> None:
        self._config, self._plan = config, config.rollouts
        self._order = Random(sampling_seed)
        self._random = torch.Generator().manual_seed(_SAMPLING_SEEDS + sampling_seed)
        self._algorithm = resolve_algorithm(config.algorithm)
        self._trainer = EmbeddedTrainer(config)
        self._sampler = make_model(config.seed).eval()
        self._version = 0
        self._num_requested = 0
        self._rates: dict[str, float] = {}
        self._open: list[_Group] = []
        self._queued: list[_Rollout] = []
        self._running: list[_Rollout] = []

    def run(self) -> Iterator[list[_Group]]:
        """Yield the groups of each step, trained."""
        for step in range(self._config.steps):
            self._submit()
            groups = self._open[:HIGHEST]
            while not all(rollout.is_over for group in groups for rollout in group.rollouts):
                self._tick()
            for _ in range(_UPDATE_TICKS):  # workers go on while the trainer updates
                self._tick()
            self._train(groups, step)
            yield groups

    def _submit(self) -> None:
        starts = plan_start_versions(
            [group.start for group in self._open],
            self._version,
            groups_per_step=HIGHEST,
            max_staleness=self._plan.max_staleness,
            ask_ahead_steps=self._plan.ask_ahead_steps,
        )
        for start in islice(starts, 0, None, HIGHEST):
            hidden = self._order.sample(range(1, HIGHEST + 1), HIGHEST)
            for number, share in zip(hidden, self._shares(hidden), strict=True):
                rollouts = [_Rollout(number) for _ in range(share)]
                self._open.append(_Group(self._num_requested, start, number, rollouts))
                self._queued += rollouts
                self._num_requested += 1

    def _shares(self, hidden: Sequence[int]) -> list[int]:
        size, curriculum = self._plan.group_size, self._plan.curriculum
        if curriculum is None:
            return [size] * len(hidden)
        rates = [self._rates.get(str(number), 0.5) for number in hidden]
        return curriculum.share(size * len(hidden), rates)

    @torch.no_grad()
    def _tick(self) -> None:
        """Sample the next guess of each running game."""
        num_free = RECIPE.slots - len(self._running)
        self._running += self._queued[:num_free]
        self._queued = self._queued[num_free:]
        rows = [(_TOKENS["guess"], *rollout.response) for rollout in self._running]
        prompts = {row: index for index, row in enumerate(dict.fromkeys(rows))}  # most games share theirs
        if not prompts:
            return
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in prompts], batch_first=True)
        last = torch.tensor([len(row) - 1 for row in prompts])
        logprobs = self._sampler(padded).logits[torch.arange(len(prompts)), last].log_softmax(-1)
        logprobs = logprobs[[prompts[row] for row in rows]]
        tokens = torch.multinomial(logprobs.exp(), 1, generator=self._random)
        found = zip(self._running, tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist(), strict=True)
        for rollout, token, logprob in found:
            rollout.add(token, logprob, self._version)
        self._running = [rollout for rollout in self._running if not rollout.is_over]

    def _train(self, groups: Sequence[_Group], step: int) -> None:
        samples = [
            GroupSamples(
                group_id=str(group.position),
                task_id=str(group.hidden),
                rollouts=[
                    RolloutSamples(trajectory_id=f"{number}", reward=rollout.reward, samples=[rollout.sample()])
                    for number, rollout in enumerate(group.rollouts)
                ],
            )
            for group in groups
        ]
        batch = select_batch(samples, keep_equal=self._algorithm.is_regularised(step, self._config.steps))
        self._trainer.update(batch, step, self._version)
        self._sampler.load_state_dict(dict(self._trainer.weights()))
        self._version += 1
        del self._open[:HIGHEST]
        if self._plan.curriculum:
            rates = {str(group.hidden): _success(group.rollouts) for group in groups}
            self._rates = update_rates(self._rates, rates, self._plan.curriculum.memory)


def simulate(seed: int, changes: Sequence[str], steps: int) -> Outcome:
    """Simulate one run of the demo with changed options, such as ``rollouts.max_staleness=1``."""
    with TemporaryDirectory() as home:
        write_model(Path(home, "model"), seed)
        config = make_config(Path(home), "simulation", seed, steps)
        for change in changes:
            path, _, value = change.partition("=")
            config = _replace(config, path.split("."), json.loads(value))
        trained = list(Simulation(config, seed).run())
    last = [group for groups in trained[-5:] for group in groups]
    by_number = {
        number: _success([one for group in last if group.hidden == number for one in group.rollouts])
        for number in range(1, HIGHEST + 1)
    }
    openings = [rollout.guesses[0] for group in last for rollout in group.rollouts]
    return Outcome(
        seed=seed,
        success=fmean(by_number.values()),
        success_by_number=by_number,
        curve=[fmean(_success(group.rollouts) for group in groups) for groups in trained[9::10]],
        opening=max(set(openings), key=openings.count),
    )


def _success(rollouts: Sequence[_Rollout]) -> float:
    return fmean(rollout.reward > 0 for rollout in rollouts)


def _replace(config: TrainConfig, path: Sequence[str], value: object) -> TrainConfig:
    """Return the configuration with one option changed, checked like a file."""
    changed = msgspec.to_builtins(config, enc_hook=str)
    section = changed
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = value
    return msgspec.convert(changed, TrainConfig, dec_hook=lambda kind, text: kind(text))


def main(arguments: Sequence[str]) -> int:
    """Print each run, and how they are distributed; return 1 when one is below the goal."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-19", help="such as 0-19 or 3; of weights and sampling")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], help="option=JSON, such as rollouts.max_staleness=1")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    run = partial(simulate, changes=options.set, steps=options.steps)
    found: list[Outcome] = []
    # a trainer is one process group, so each run has a process of its own
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=1) as pool:
        for outcome in pool.imap_unordered(run, range(int(first), int(last or first) + 1)):
            found.append(outcome)
            curve = " ".join(f"{success:.2f}" for success in outcome.curve)
            print(
                f"seed {outcome.seed:3d}  success {outcome.success:.3f}  opening {outcome.opening}  {curve}", flush=True
            )
    reached = [outcome.success for outcome in found]
    num_reached = sum(success >= GOAL for success in reached)
    print(f"\n{len(found)} runs: minimum {min(reached):.3f}, median {median(reached):.3f}", end="")
    print(f", at least {GOAL:g} in {num_reached} ({num_reached / len(found):.0%})")
    return int(num_reached < len(found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
