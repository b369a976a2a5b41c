"""``cost`` counts what a random store holds as its maker counted while making it."""

import json
import random
from collections import defaultdict

import pytest
from msgspec.structs import replace

from agent_layer.errors import BadInputError
from agent_layer.schema.record import TokenIds
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.sandbox import SandboxUsage
from agent_layer.schema.step import Action, PromptDelta, Usage
from agent_layer.schema.training import ExcludedRollout, TrainedBatch, TrainedRollout
from agent_layer.store import open_store
from envs.costs.prices import read_prices

from ...builders import attempt, call, sampled
from ...stored import write_segment

PRICES = """
currency = "EUR"
engine_hour = 3.6
sandbox_hour = 0.36
[tokens.big]
prompt = 2.0
cached = 0.5
response = 8.0
"""
VERSIONS = (0, 1, 2)
MODELS = {"small": "http://e:1", "big": "http://e:2", "other": "litellm", "traced": None}


class Maker:
    """Makes a store and keeps, beside each record, a plain line of what it should count as."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.records, self.lines = [], []

    def calls(self, tid, run, at, line):
        """A few calls; their cost is written down as they are made."""
        found = []
        for number in range(self.dice.randrange(4)):
            model = self.dice.choice(list(MODELS))
            kind = self.dice.choice(["counted", "ids", "silent", "error"])
            prompt, response = self.dice.randrange(5, 90), self.dice.randrange(1, 30)
            cached = self.dice.randrange(prompt) if kind == "counted" else 0
            ids = [list(range(response))] if self.dice.random() < 0.7 or response < 2 else [[1], [2] * (response - 1)]
            actions = [sampled(*part, version=self.dice.choice(VERSIONS)) for part in ids]
            if kind in ("silent", "error"):
                actions = [Action() for _ in ids]
            parts = call(
                tid,
                f"{number}",
                *actions,
                at=at + number,
                run=run,
                prompt=PromptDelta(delta=TokenIds(range(prompt))) if kind == "ids" else None,
                model=model,
                engine=MODELS[model],
                usage=Usage(prompt_tokens=prompt, response_tokens=response, cached_tokens=cached)
                if kind == "counted"
                else None,
            )
            if kind == "error":
                parts[1] = replace(parts[1], status="error")
            found += parts
            line["calls"] += 1
            if kind in ("counted", "ids"):
                line["prompt"] += prompt
                line["response"] += response
                line["cached"] += cached
            line["seconds"] += 0.0 if model in ("other", "traced") else 0.5
            if model == "small":
                line["cost"] += 0.5 * 3.6 / 3600
            elif model == "big" and kind in ("counted", "ids"):
                line["cost"] += ((prompt - cached) * 2.0 + cached * 0.5 + response * 8.0) / 1e6
            line["versions"] += [version for one in actions for version, _ in one.policy_versions or ()]
        return found

    def attempt(self, tid, run, group, task, at, *, accepted):
        line = defaultdict(float, tid=tid, rollout=tid[:-2], run=run, group=group, task=task, versions=[], judges=0.0)
        parts = self.calls(tid, run, at + 1, line)
        score = self.dice.choice([None, 0.0, 1.0])
        split = self.dice.choice(["train", "train", "eval"])
        label = self.dice.choice(["a", "b"])
        named = {"task_id": task, "group_id": group, "split": split, "labels": {"team": label}}
        status = "completed" if accepted else self.dice.choice(["failed", "running"])
        records = attempt(tid, *parts, at=at, run=run, status=status, score=score, **named)
        if self.dice.random() < 0.5 and status != "running":
            box, scoring = self.dice.randrange(100), self.dice.choice([None, 7.0])
            used = SandboxUsage(box_seconds=float(box), scoring_box_seconds=scoring)
            records = [replace(one, sandbox=used) if isinstance(one, Outcome) else one for one in records]
            line["sandbox"] += box + (scoring or 0)
            line["cost"] += (box + (scoring or 0)) * 0.36 / 3600
        line |= {"split": split, "label": label, "is_solved": accepted and bool(score)}
        line["fate"] = {"failed": "failed", "running": "running"}.get(status) or (
            "evaluated" if split == "eval" else "waiting"
        )
        for number in range(self.dice.randrange(3)):
            spent = defaultdict(float, versions=[])
            name, judging = f"j{tid}.{number}-0", f"{run}:judge"
            parts = self.calls(name, judging, at, spent)
            self.records += attempt(name, *parts, run=judging, split="eval", labels={"judges": tid})
            line["judges"] += spent["prompt"] + spent["response"]
            line["cost"] += spent["cost"]
        self.records += records
        self.lines.append(line)

    def update(self, run, step, groups, trained_at):
        """Record an update of whole groups, and leave some members out, or count them without rows."""
        members = [one for one in self.lines if one["group"] in groups and one["fate"] == "waiting"]
        rollouts = []
        for line in members:
            what = self.dice.choice(["trained", "trained", "stale", "greedy", "equal_rewards"])
            if what in ("trained", "equal_rewards"):
                named = {"group_id": line["group"], "reward": 1.0, "reward_ids": [], "samples_hash": ""}
                rollouts.append(TrainedRollout(trajectory_id=line["tid"], **named))
            if what != "trained":
                own = {"trajectory_id": line["tid"], "run": run, "step": step, "at": trained_at}
                self.records.append(ExcludedRollout(**own, kind=what, reason="why"))
            line["fate"] = what if what in ("trained", "stale") else "rejected"
        learned = {one.group_id for one in rollouts}
        for line in self.lines:
            if line["group"] in learned and "update" not in line:
                line["update"] = step
        own = {"run": run, "batch_id": f"{run}{step}{trained_at}", "step": step, "policy_version": step}
        self.records.append(TrainedBatch(**own, trained_at=trained_at, rollouts=rollouts, num_samples=1, batch_hash=""))


def make_store(settings, seed):
    maker = Maker(seed)
    for number in range(10):
        run, group = f"r{number % 2}", f"g{number}"
        for member in range(maker.dice.randrange(1, 4)):
            retries = maker.dice.randrange(3)
            for at in range(retries + 1):
                tid = f"{group}.{member}-{at}"
                maker.attempt(tid, run, group, f"t{number % 3}", 10.0 * number, accepted=at == retries)
    for step in (1, 2):
        for run in (0, 1):
            maker.update(
                f"r{run}", step, {f"g{number}" for number in range(4 * step - 4 + run, 4 * step + run, 2)}, step
            )
    store = open_store(settings)
    maker.dice.shuffle(maker.records)
    write_segment(store, *maker.records)
    return maker.lines


KEYS = {
    "run": lambda line: line["run"],
    "task": lambda line: line["task"],
    "label:team": lambda line: line["label"],
    "version": lambda line: max(line["versions"], default=None),
    "update": lambda line: line.get("update"),
    "fate": lambda line: line["fate"],
}


def count(lines, key):
    """Add the lines up, one sum for each value."""
    found = defaultdict(list)
    for line in lines:
        found[key(line)].append(line)
    return {
        value: {
            "rollouts": len({one["rollout"] for one in same}),
            "solved": len({(one["run"], one["task"]) for one in same if one["is_solved"]}),
            "updates": len({(one["run"], one["update"]) for one in same if "update" in one}),
            **{name: sum(one[name] for one in same) for name in NAMES},
            "wasted": sum(one["prompt"] for one in same if one["fate"] in ("failed", "rejected", "stale")),
        }
        for value, same in found.items()
    }


NAMES = {
    "calls": "num_calls",
    "seconds": "engine_seconds",
    "prompt": "prompt_tokens",
    "cached": "cached_tokens",
    "response": "response_tokens",
    "judges": "judge_tokens",
    "sandbox": "sandbox_seconds",
    "cost": "cost",
}


@pytest.mark.parametrize(
    "seed", [0, 1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)]
)
def test_each_sum_is_what_was_put_in(settings, agent_layer, seed):
    lines = make_store(settings, seed)

    for field, key in KEYS.items():
        status, out, err = agent_layer("cost", "--by", field, "--prices", PRICES, "--format", "jsonl")
        assert status == 0, err
        found = {}
        for account in map(json.loads, out.splitlines()):
            found[account["by"][field]] = {
                "rollouts": account["num_rollouts"],
                "solved": account["num_solved"],
                "updates": account["num_updates"],
                **{name: account["total"][its] for name, its in NAMES.items()},
                "wasted": sum(one["prompt_tokens"] for one in account["waste"].values()),
            }
        expected = count(lines, key)
        assert found.keys() == expected.keys(), field
        for value, sums in expected.items():
            assert found[value] == pytest.approx(sums), (field, value)


def test_shares_and_filters_and_no_prices(settings, agent_layer):
    lines = [one for one in make_store(settings, 9) if one["run"] == "r1"]
    (all_,) = count(lines, lambda _: None).values()

    status, out, _ = agent_layer("cost", "--run", "r1", "--by", "", "--per", "rollout", "--format", "jsonl")
    (account,) = map(json.loads, out.splitlines())
    assert (status, account["currency"], account["total"]["cost"]) == (0, None, 0.0)
    assert account["share"]["prompt_tokens"] == pytest.approx(all_["prompt"] / all_["rollouts"])

    status, out, _ = agent_layer("cost", "--run", "r1", "--prices", PRICES)
    assert (status, "EUR" in out, f"{all_['cost']:.4f}" in out) == (0, True, True)
    assert agent_layer("cost", "--by", "colour")[0] == 2


def test_the_line_of_a_summary_says_what_cost_says(settings, agent_layer, monkeypatch):
    make_store(settings, 4)
    monkeypatch.setenv("AGENT_LAYER_PRICES", PRICES)

    for filters in (["--run", "r1"], ["--label", "team=a"]):
        table = agent_layer("cost", *filters, "--by", "")[1].splitlines()
        (line,) = [one for one in agent_layer("summary", *filters, "--cost")[1].splitlines() if one.startswith("cost")]
        calls, seconds, *_, wasted, cost = table[1].split()[4:]
        assert line.startswith(f"cost of {table[1].split()[0]} attempts: calls {calls}, engine s {seconds}, prompt ")
        assert line.endswith(f"wasted {wasted}, {cost} EUR")
    status, out, err = agent_layer("summary", "--cost", "--format", "jsonl", "--run", "none")
    assert (status, out, "cost of 0 attempts: nothing" in err) == (0, "", True)


@pytest.mark.parametrize(
    ("name", "shown"), [("[/red]",) * 2, ("[bold]x",) * 2, (":bug:",) * 2, ("日本",) * 2, ("\x1b[2J", "�[2J")]
)
def test_names_are_shown_as_they_are_and_do_nothing(settings, agent_layer, name, shown):
    write_segment(open_store(settings), *attempt("t.0-0", task_id=name, labels={name: name}))

    status, out, err = agent_layer("cost", "--by", f"task,label:{name}")

    assert (status, out.count(shown), "\x1b" in out) == (0, 3, False), err


@pytest.mark.parametrize(
    "source",
    [
        "no-such-file.toml",
        "engine_hour = -1",
        "engine_hour = inf",
        "[tokens.a]\nprompt = nan\nresponse = 1",
        "enigne_hour = 1",
        "[tokens.a]\nprompt = 1",
        '{"tokens": 1}',
        "=",
        "{",
    ],
)
def test_prices_that_cannot_be_used_are_refused(source):
    with pytest.raises(BadInputError, match="prices"):
        read_prices(source)


def test_prices_are_read_from_toml_json_and_files(tmp_path):
    place = tmp_path / "prices.toml"
    place.write_text(PRICES)
    as_json = '{"currency":"EUR","engine_hour":3.6,"sandbox_hour":0.36,"tokens":{"big":{"prompt":2.0,"response":8.0,'

    assert read_prices(str(place)) == read_prices(PRICES) == read_prices(as_json + '"cached":0.5}}}')
    assert read_prices("") is read_prices(None) is None
    assert read_prices('[tokens."gpt-*"]\nprompt = 1\nresponse = 2').find("gpt-4o").cost(1_000_000, 0, 500_000) == 1.0
