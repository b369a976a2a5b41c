"""Long rows over a large vocabulary: trained whole, in memory that their length hardly changes.

torch takes seconds to import, so it is imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from trainer_adapter.verl_keys import CHUNK_TOKENS

from ..waiting import run

if TYPE_CHECKING:
    from .long_rows import TrainedRow

pytestmark = pytest.mark.filterwarnings("ignore")  # torch and veRL warn of each other

PROGRAM = Path(__file__).parent / "long_rows.py"
WORDS, POSITIONS = 151_936, 65_536
"""Of Qwen2's and Qwen3's vocabularies; and the longest row of the plans for GPUs."""
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
"""The C library keeps what was freed: mapping each chunk's memory again takes longer than computing in it."""
LOGITS = CHUNK_TOKENS * WORDS * 4
"""Bytes of one chunk's logits."""


@pytest.fixture
def wide_model(tmp_path: Path) -> Path:
    """Directory of a model with few weights and many words; the tokenizer knows some of them."""
    import torch
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    from trainer_adapter.tiny_model import write_chat_model

    write_chat_model(tmp_path / "chat")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=WORDS,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=False,
        initializer_range=0.3,
    )
    Qwen2ForCausalLM(config).float().save_pretrained(tmp_path / "wide")
    AutoTokenizer.from_pretrained(tmp_path / "chat").save_pretrained(tmp_path / "wide")
    return tmp_path / "wide"


def train_rows(model: Path, *lengths: int) -> "list[TrainedRow]":
    from .long_rows import TrainedRow

    done = run([sys.executable, PROGRAM, model, *lengths], 1800, env=os.environ | KEEP_MEMORY)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=list[TrainedRow])


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_row_of_65536_tokens_is_trained_in_the_memory_of_one_of_16384(wide_model, record_property):
    """The sum of loss masks is what is trained: no row is cut, none left out."""
    shorter, longest = rows = train_rows(wide_model, POSITIONS // 4, POSITIONS)

    for row in rows:
        num_response = row.num_tokens - row.num_tokens // 8 - 4
        in_loss = num_response - num_response // 4 + 4
        assert row.num_trained == in_loss + 43
        assert row.is_changed
        assert row.logprobs == pytest.approx(row.expected, abs=1e-4)
        record_property(f"peak_bytes_{row.num_tokens}", row.peak_bytes)
    assert longest.num_tokens == POSITIONS
    assert 2 * LOGITS < longest.peak_bytes < 5 * LOGITS, "a few copies of one chunk's logits"
    assert longest.peak_bytes - shorter.peak_bytes < LOGITS / 10, "hidden states and scores grow, logits do not"
