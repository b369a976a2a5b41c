"""Batches for prime-rl's trainer: what it trains is what the store has."""

import os
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec
import pytest

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema import Task
from agent_layer.store import list_batches, open_store
from trainer_adapter.data import rebuild_batch, samples_of

from ..documents import blocks
from ..waiting import run
from .conftest import RUN

HERE = Path(__file__).parent
PYTHON = os.environ.get("PRIME_RL_PYTHON")
COLUMNS = ["input_ids", "loss_mask", "advantages", "inference_logprobs", "position_ids", "temperatures", "env_names"]
FIELDS = [*COLUMNS[:5], "sequence_lengths", *COLUMNS[5:], "seq_lens"]
"""The first fields of prime-rl's ``MicroBatch``, in their order; those behind have defaults."""

pytestmark = pytest.mark.usefixtures("player")


@pytest.fixture
def output_dir(tmp_path):
    """The directory of a trainer of prime-rl that waits for its first batch."""
    import torch  # noqa: PLC0415  # seconds
    from safetensors.torch import save_file  # noqa: PLC0415

    weights = tmp_path / "broadcasts" / "step_0"
    weights.mkdir(parents=True)
    save_file({"weight": torch.zeros(2)}, weights / "model.safetensors")
    (weights / "STABLE").touch()
    return tmp_path


@pytest.fixture
def open_feed(settings, model, output_dir):
    """``open_feed(…)``: a feed over the tasks a and b."""
    from trainer_adapter.foreign import PrimeRlFeed  # noqa: PLC0415  # torch takes seconds

    def open_feed(**options):
        tasks = [Task(id=name, run=RUN, input=name) for name in "ab"]
        settings_of_run = settings.model_copy(update={"run": RUN})
        options = {"seq_len": 5, "num_ranks": 2, "patience_seconds": 60} | options
        return PrimeRlFeed(output_dir, model, tasks, settings_of_run, **options)

    return open_feed


def request_groups():
    from trainer_adapter.foreign import GroupRequest  # noqa: PLC0415

    return [GroupRequest("a", 3), GroupRequest("b", 3)]


def read_files(output_dir, num_ranks=2):
    """Return the micro-batches of each rank of step 1, as MessagePack names them."""
    files = [output_dir / "rollouts" / "step_1" / f"rank_{rank}.bin" for rank in range(num_ranks)]
    ranks = [msgspec.msgpack.decode(file.read_bytes()) for file in files]
    return [[dict(zip(FIELDS, one, strict=True)) for one in rank] for rank in ranks]


def list_rows(ranks):
    """Return what the micro-batches train, row by row, in any order."""
    rows = []
    for one in (one for rank in ranks for one in rank if any(one["loss_mask"])):
        assert one["sequence_lengths"] == one["seq_lens"]
        ends = pairwise(accumulate(one["seq_lens"], initial=0))
        rows += [tuple(tuple(one[name][start:end]) for name in COLUMNS) for start, end in ends]
    return sorted(rows)


def list_stored_rows(settings, advantages, temperature):
    """Return the same from the store; advantages by trajectory."""
    store, rows = open_store(settings), []
    for trajectory_id, advantage in advantages.items():
        for one in samples_of(store.get(trajectory_id)).samples:
            context, size = (0,) * len(one.prompt_ids), len(one.prompt_ids) + len(one.response_ids)
            mask = (*context, *one.loss_mask)
            rows.append(
                (
                    (*one.prompt_ids, *one.response_ids),
                    tuple(map(bool, mask)),
                    tuple(advantage * is_own for is_own in mask),
                    (*context, *one.logprobs),
                    tuple(range(size)),
                    (temperature,) * size,
                    ("default",) * size,
                )
            )
    return sorted(rows)


def test_each_row_is_stored_and_one_changed_id_is_seen(settings, open_feed, output_dir, wait_until):
    batch = open_feed().send(1, request_groups(), temperature=0.5)

    ranks, store = read_files(output_dir), open_store(settings)
    assert len({len(rank) for rank in ranks}) == 1
    assert all(len(one["input_ids"]) <= 5 for rank in ranks for one in rank)
    mean = 1 / 3  # one of three rollouts succeeds
    advantages = {name: reward - mean for name, reward in zip(batch.trajectory_ids, batch.rewards, strict=True)}
    stored = list_stored_rows(settings, advantages, 0.5)
    assert len(stored) == 6
    assert list_rows(ranks) == stored

    wait_until(lambda: list_batches(store.redis, store.keys, RUN))
    (record,) = list_batches(store.redis, store.keys, RUN)
    assert (record.step, rebuild_batch(record, store.get).differences) == (1, [])
    versions = {version for one in batch.samples for version in one.versions if version >= 0}
    assert versions == {record.policy_version}

    ranks[0][0]["input_ids"][0] += 1
    assert list_rows(ranks) != stored


@pytest.mark.skipif(PYTHON is None, reason="no PRIME_RL_PYTHON, an interpreter that imports prime_rl")
def test_prime_rl_reads_what_was_written(open_feed, output_dir):
    open_feed().send(1, request_groups())

    done = run([PYTHON, HERE / "prime_rl_read.py", output_dir, 2], 60)
    assert done.returncode == 0, done.stderr
    read = msgspec.json.decode(done.stdout)
    own = read_files(output_dir)
    assert [[{name: one[name] for name in FIELDS} for one in rank] for rank in read] == own
    assert all(one[name] is None for rank in read for one in rank for name in one.keys() - set(FIELDS))


@pytest.mark.long
def test_rows_that_are_too_long_for_prime_rl_are_left_out(open_feed, output_dir):
    with pytest.raises(AgentLayerError, match="expected two different rewards in a group, found none in 10 rounds"):
        open_feed(seq_len=1).send(1, request_groups())
    assert not (output_dir / "rollouts").exists()


@pytest.mark.parametrize(
    ("spoil", "error", "sentence"),
    [
        (lambda one: (one / "STABLE").unlink(), AgentLayerError, "expected weights in .*step_0, found none for 0 s"),
        (lambda one: (one / "adapter_config.json").touch(), BadInputError, "found an adapter; train without LoRA"),
    ],
)
def test_weights_that_are_not_there_or_not_whole_are_an_error(open_feed, output_dir, spoil, error, sentence):
    spoil(output_dir / "broadcasts" / "step_0")
    with pytest.raises(error, match=sentence):
        open_feed(patience_seconds=0).send(1, request_groups())


@pytest.mark.long
def test_the_program_of_the_page_feeds_prime_rl(settings, model, output_dir, monkeypatch):
    (program,) = [text for page, text in blocks("python") if "PrimeRlFeed" in text]
    for name, value in settings.model_copy(update={"run": RUN}).environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(output_dir)
    (output_dir / "out").symlink_to(output_dir)
    (output_dir / "MODEL").symlink_to(model)
    (output_dir / "tasks.jsonl").write_text('{"id": "a", "input": 1}\n{"id": "b", "input": 2}\n')
    scope = {}
    exec(program.replace('run="prime"', f'run="{RUN}"'), scope)  # a document of ours
    scope["feed_prime_rl"](1, 2)
    assert len(list_rows(read_files(output_dir))) == 16 * 8
