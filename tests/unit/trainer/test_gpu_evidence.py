"""What is expected of updates on GPUs, and what becomes of figures whose process dies: no GPU, no torch."""

import sys
from pathlib import Path

import msgspec
import pytest

from trainer_adapter.config import LoraConfig
from trainer_adapter.evidence.cases import CASES, REHEARSED, Case, count_bucket_bytes, expect
from trainer_adapter.evidence.collect import list_requests, run_process
from trainer_adapter.evidence.page import summarize, write_evidence, write_expected
from trainer_adapter.evidence.records import (
    Buckets,
    Evidence,
    Fault,
    Heartbeat,
    Line,
    Machine,
    RatioTails,
    Request,
    Update,
)
from trainer_adapter.start.memory import ModelShape

from ...documents import ROOT
from ...waiting import scaled

SMALL = ModelShape(
    vocab_size=10,
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    model_type="qwen2",
)
MATRICES = 10 * 8 + 2 * (8 * 8 + 8 * 4 + 8 * 4 + 8 * 8 + 3 * 8 * 16)
"""Logits; queries, keys, values, output, MLP of two layers."""
SEEN = 2 * 2 * 2 * 8 * 50
"""Scores and values of two layers of width 8, of 50 of 100 tokens on average: a multiplication and an addition each."""
MACHINE = Machine(device="cuda", name="GPU X", num_ranks=8, gpu_bytes=80 * 10**9, tflops=790.0, versions={"torch": "2"})
UPDATE = Update(
    case="1.5B",
    row_length=16_384,
    num_rows=16,
    seconds=10.0,
    tokens_per_second=3_276.8,
    mfu=0.41,
    peak_bytes=33_000_000_000,
    grad_norm=1.0,
    expected=expect(CASES[1], 16_384),
)
TAILS = RatioTails(
    case="0.5B", trainer="bfloat16", engine="bfloat16", num_tokens=9, mean=1e-3, p99=2e-3, p999=3e-3, largest=4e-3
)
BUCKETS = Buckets(case="0.5B", num_bytes=2 * 10**9, expected_bytes=2 * 10**9, seconds=1.5, is_equal=True)
FAULT = Fault(what="7B-LoRA: an update of rows of 65,536 tokens", why="ended with status 1")
FOUND = [MACHINE, UPDATE, TAILS, BUCKETS, FAULT]


def test_the_page_expects_what_the_code_computes():
    assert f"\n{write_expected()}\n" in (ROOT / "docs/internals/gpu.md").read_text(), "run .ci/write_gpu.py"


def test_flops_are_those_of_matrices_and_of_the_tokens_before():
    whole, adapter = (expect(Case(name="s", shape=SMALL, lora=lora), 100) for lora in (None, LoraConfig(rank=1)))

    assert whole.flops_per_token == (2 * MATRICES + SEEN) * 4, "two passes forward, one backward that costs two"
    assert adapter.flops_per_token == (2 * MATRICES + SEEN) * 3, "frozen matrices need no gradient"


def test_gpus_that_share_a_model_share_its_states():
    one, eight = (expect(CASES[1], 16_384, num_ranks) for num_ranks in (1, 8))

    assert abs(eight.states_bytes * 8 - one.states_bytes) <= 3 * 8, "three parts, each rounded up"
    assert one.peak_bytes - one.states_bytes == eight.peak_bytes - eight.states_bytes


def test_tied_embeddings_are_sent_twice():
    loose, tied = (
        Case(name="s", shape=msgspec.structs.replace(SMALL, tie_word_embeddings=tie)) for tie in (False, True)
    )

    assert count_bucket_bytes(loose) == count_bucket_bytes(tied) == 4 * SMALL.num_parameters


@pytest.mark.parametrize("is_rehearsal", [False, True])
def test_each_case_and_each_pair_of_precisions_is_measured_once(tmp_path, is_rehearsal):
    requests = list_requests(tmp_path, is_rehearsal=is_rehearsal)

    assert [one.case for one in requests if one.has_updates] == list(REHEARSED if is_rehearsal else CASES)
    pairs = [(one.precision, engine) for one in requests for engine in one.engines]
    assert sorted(pairs) == [("bfloat16", "bfloat16"), ("float32", "bfloat16"), ("float32", "float32")]
    assert len({one.results for one in requests}) == len({one.directory for one in requests}) == len(requests)


def run(tmp_path: Path, program: str, seconds: float = 60.0):
    """Run a program that is handed its file of results, and two lines for it."""
    results = str(tmp_path / "found.jsonl")
    request = Request(case=CASES[0], precision="float32", directory=str(tmp_path / "own"), results=results)
    lines = b"".join(msgspec.json.encode(Line(found=one)) + b"\n" for one in (Heartbeat(doing="a sum"), TAILS))
    command = [sys.executable, "-c", f"import sys, time\n{program}", results, lines.decode()]
    return list(run_process(request, command, tmp_path / "out.log", seconds))


WRITE = "open(sys.argv[1], 'w').write(sys.argv[2])"


@pytest.mark.parametrize(
    ("end", "seconds", "words"),
    [
        ("", 60.0, []),
        ("sys.exit('no memory')", 60.0, ["ended with status 1", "no memory"]),
        ("time.sleep(1e6)", 2.0, ["took longer than the "]),
    ],
)
def test_what_a_process_found_is_kept_however_it_ends(tmp_path, end, seconds, words):
    found = run(tmp_path, f"{WRITE}\n{end}", scaled(seconds))

    faults = found[2:]
    assert found[:2] == [Heartbeat(doing="a sum"), TAILS]
    assert [one.what for one in faults] == ["a sum"] * bool(words), "what it did when it ended"
    assert all(word in fault.why for fault in faults for word in words)


def test_a_page_has_every_figure_beside_what_was_expected_of_it():
    evidence = Evidence(date="2026-12-01", seconds=90.0, is_rehearsal=False, found=FOUND, not_checked=["engines"])
    page = write_evidence(evidence)

    assert "8 x GPU X, 2026-12-01" in page
    assert "| 1.5B | 16 x 16,384 | 10.00 | 3,277 | 43,924 | 41.0% | 33 | 30.3 | +9% |" in page
    assert "| 0.5B | bfloat16 | bfloat16 | 9 | 1.0e-03 | 2.0e-03 | 3.0e-03 | 4.0e-03 |" in page
    assert "| 0.5B | 2 | 2 | 1.50 | yes |" in page
    assert f"* {FAULT.what}: {FAULT.why}" in page
    assert "* engines" in page
    assert all(summarize(one) for one in FOUND)
    assert msgspec.json.decode(msgspec.json.encode(evidence), type=Evidence) == evidence


def test_a_rehearsal_says_that_its_times_mean_nothing():
    evidence = Evidence(date="2026-12-01", seconds=90.0, is_rehearsal=True, found=FOUND, not_checked=[])

    assert "times and memory mean nothing" in write_evidence(evidence)
    assert "GPU X, 2026" not in write_evidence(evidence), "no card in the heading"
