"""``verify-cluster`` rehearsed: two machines, which are two processes that meet on loopback, share each tiny model."""

import subprocess
import sys

import msgspec
import pytest

from agent_layer.infra.processes.addresses import free_port
from trainer_adapter.evidence.cases import REHEARSED
from trainer_adapter.evidence.records import Buckets, Evidence, Machine, RatioTails, Update

from ..waiting import communicate

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(1200), pytest.mark.long]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """(directory of the first machine, exit status and output of each)."""
    out = tmp_path_factory.mktemp("out")
    command = [sys.executable, "-m", "agent_layer.cli", "verify-cluster", "--rehearse"]
    command += ["--machines", "2", "--address", f"127.0.0.1:{free_port()}"]
    processes = [
        subprocess.Popen(
            [*command, "--machine", str(number), "--out", str(out / str(number))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    written = [communicate(process, 600)[0] for process in processes]
    return out, [(process.returncode, text) for process, text in zip(processes, written, strict=True)]


def test_two_machines_write_one_page_with_all_figures(outputs):
    out, ends = outputs
    assert [status for status, _ in ends] == [0, 0], ends
    evidence = msgspec.json.decode((out / "0/figures.json").read_bytes(), type=Evidence)

    assert [one.num_ranks for one in evidence.found if isinstance(one, Machine)] == [2]
    updates = {(one.case, one.row_length) for one in evidence.found if isinstance(one, Update)}
    assert updates == {(case.name, length) for case in REHEARSED for length in case.row_lengths}
    assert "Rehearsal on a CPU" in (out / "0/page.md").read_text()
    assert not (out / "1/page.md").exists()
    assert "an update of rows of 512 tokens" in ends[0][1], "progress"


def test_ratios_differ_where_precisions_do_and_weights_arrive(outputs):
    evidence = msgspec.json.decode((outputs[0] / "0/figures.json").read_bytes(), type=Evidence)
    largest = {(one.trainer, one.engine): one.largest for one in evidence.found if isinstance(one, RatioTails)}
    buckets = [one for one in evidence.found if isinstance(one, Buckets)]

    assert largest["float32", "float32"] < 1e-5
    assert 1e-4 < largest["float32", "bfloat16"] < 0.2
    assert [(one.case, one.is_equal, one.num_bytes == one.expected_bytes) for one in buckets] == [
        (case.name, True, True) for case in REHEARSED
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "expected a GPU, found none by torch; with --rehearse"),
        (["--machines", "2", "--rehearse"], "expected --address HOST:PORT of the first of 2 machines"),
        (["--machines", "2", "--machine", "2", "--address", "a:1"], "and a --machine below 2, found 'a:1' and 2"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_remedy(tmp_path, monkeypatch, agent_layer, options, words):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    status, _, error = agent_layer("verify-cluster", "--out", tmp_path / "out", *options)

    assert status == 2
    assert words in " ".join(error.split())
    assert not (tmp_path / "out").exists()
