"""TRL's trainers, which have an environment of their own, over our rollouts: what it trains is what is stored."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from agent_layer.infra.processes.addresses import free_port
from agent_layer.store import list_batches, open_store
from trainer_adapter.data import samples_of

from ..waiting import run, wait_for_exit, wait_until

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent
PYTHON = Path(os.environ.get("TRL_PYTHON", Path(sys.prefix, "trl", "bin", "python")))
RUN = "trl"
TASKS = "".join(f'{{"id": "t{number}", "input": {number}, "scorer": "agent"}}\n' for number in range(4))

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not PYTHON.exists(), reason="no TRL in .venv/trl: 'make test-all' installs it"),
]


class SeenRow(msgspec.Struct):
    """A row of a pass that TRL trained."""

    step: int
    ids: list[int]
    trained: dict[int, float]
    """Log-probabilities that TRL computed, by the places of the tokens that got a gradient."""


@pytest.fixture
def train(settings, tmp_path):
    """``train(script, kind, **variables)``: two steps of TRL; returns the rows that it trained."""
    from trainer_adapter.demo.model import write_model  # noqa: PLC0415  # torch takes seconds

    write_model(tmp_path / "model", seed=0)
    (tmp_path / "tasks.jsonl").write_text(TASKS)
    port, started = free_port(), []
    own = {"run": RUN, "api_key": "ok-only-for-this-test", "gateway_url": f"http://127.0.0.1:{port}"}
    variables = os.environ | settings.model_copy(update=own).environment() | {"PYTHONPATH": f"{ROOT}:{HERE}"}

    def start(*words):
        with (tmp_path / f"{words[0]}.out").open("wb") as out:
            command = [sys.executable, "-m", "agent_layer.cli", *words]
            started.append(subprocess.Popen(command, env=variables, stdout=out, stderr=out))

    def train(script, kind, **more):
        out = tmp_path / "seen.json"
        words = [PYTHON, HERE / script, tmp_path / "model", tmp_path / "tasks.jsonl", out]
        done = run(words, 300, env=variables | more, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return msgspec.json.decode(out.read_bytes(), type=list[kind])

    start("up", "--model", str(tmp_path / "model"), "--port", str(port), "--no-view")
    wait_until(lambda: "AGENT_LAYER_API_KEY" in (tmp_path / "up.out").read_text(), 240, "vLLM serves")
    start("work", "trl_agent:play", "--slots", "8")
    yield train
    for process in started:
        process.terminate()
    for process in started:
        wait_for_exit(process)


def find_differences(settings, rows: list[SeenRow], first_version: int) -> list[str]:
    """Compare each token that got a gradient with the stored tokens of the version that TRL's step names."""
    store = open_store(settings)
    stored: dict[tuple[int, tuple[int, ...]], list[dict[int, float]]] = {}
    for row in store.scan(run=RUN):
        for sample in samples_of(store.get(row.trajectory_id)).samples:
            (version,) = {one for one in sample.versions if one >= 0}
            ids = (*sample.prompt_ids, *sample.response_ids)
            first = len(sample.prompt_ids)
            own = {first + place: sample.logprobs[place] for place, is_own in enumerate(sample.loss_mask) if is_own}
            stored.setdefault((version, ids), []).append(own)
    differences: list[str] = []
    for row in filter(lambda one: one.trained, rows):
        found = stored.get((row.step + first_version, tuple(row.ids)), [])
        if not any(one.keys() == row.trained.keys() for one in found):
            differences.append(f"step {row.step}: {row.ids} trained at {sorted(row.trained)}, stored: {found}")
        elif max(abs(found[0][place] - computed) for place, computed in row.trained.items()) > 1e-4:
            differences.append(f"step {row.step}: {row.ids} has other log-probabilities")
    return differences


def test_each_token_that_trl_trains_is_one_that_the_store_has(settings, train):
    rows = train("trl_run.py", SeenRow)

    assert sorted({row.step for row in rows}) == [0, 1]
    assert len(rows) == 2 * 8
    trained = [row for row in rows if row.trained]  # an answer that is only the end token may fork: masked
    assert len(trained) >= len(rows) / 2
    assert all(len(row.ids) > 1 + len(row.trained) for row in trained)  # a question in the middle is not trained
    assert any(len(row.trained) > 1 for row in trained)
    assert find_differences(settings, rows, 1) == []

    spoiled = train("trl_run.py", SeenRow, SPOILED="1")
    assert len(find_differences(settings, spoiled, 3)) == 2  # one id in each step


class SeenAsyncRow(msgspec.Struct):
    """A row that TRL trained, some steps after it was sampled."""

    step: int
    ids: list[int]
    trained: dict[int, tuple[float, float]]
    """By place, the log-probabilities of the engine, as TRL got them, and of the trainer."""


def find_unknown(settings, rows: list[SeenAsyncRow]) -> list[str]:
    """Return the rows whose ids, trained places or log-probabilities no stored rollout has."""
    store = open_store(settings)
    stored: set[tuple[tuple[int, ...], tuple[tuple[int, float], ...]]] = set()
    for row in store.scan(run=RUN):
        for sample in samples_of(store.get(row.trajectory_id)).samples:
            first = len(sample.prompt_ids)
            own = [(first + at, sample.logprobs[at]) for at, is_own in enumerate(sample.loss_mask) if is_own]
            stored.add(((*sample.prompt_ids, *sample.response_ids), tuple(own)))
    known = [(tuple(row.ids), tuple((place, sampled) for place, (sampled, _) in row.trained.items())) for row in rows]
    return [f"step {row.step}: {key}" for row, key in zip(rows, known, strict=True) if key not in stored]


def test_trl_async_trains_rows_that_the_store_has(settings, train):
    rows = train("trl_async_run.py", SeenAsyncRow)

    assert [row.step for row in rows] == [0] * 8 + [1] * 8
    assert all(row.trained for row in rows)
    assert find_unknown(settings, rows) == []
    first = [pair for row in rows[:8] for pair in row.trained.values()]
    assert max(abs(sampled - computed) for sampled, computed in first) < 1e-4  # of the weights that sampled them
    store = open_store(settings)
    wait_until(lambda: list_batches(store.redis, store.keys, RUN))  # they are shipped beside
    assert list_batches(store.redis, store.keys, RUN)[0].policy_version == 1

    assert len(find_unknown(settings, train("trl_async_run.py", SeenAsyncRow, SPOILED="1"))) == 1
