"""Size of a long history: 30 turns as segments store them, beside every prompt stored whole."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import zstandard
from bench_table import Figure
from store_facts import Facts, make_facts
from store_feed import feed
from store_servers import run_servers
from store_turns import make_turns
from store_workload import make_appends

__all__ = ["measure_store_size"]

NUM_TURNS, NUM_TRAJECTORIES = 30, 20


def measure_store_size(directory: Path) -> list[Figure]:
    """Store long trajectories, and work out what they would be as one JSON text a call."""
    facts = [make_facts(number, NUM_TURNS) for number in range(NUM_TRAJECTORIES)]
    with run_servers(directory) as servers:
        stored = feed(servers.settings(directory / "store"), [make_appends(one) for one in facts], NUM_TRAJECTORIES)
    calls = [[msgspec.json.encode(call) for call in _whole_calls(one)] for one in facts]
    compressor = zstandard.ZstdCompressor(level=1)
    whole = sum(len(call) for one in calls for call in one) / NUM_TRAJECTORIES / 1000
    packed = sum(len(compressor.compress(call)) for one in calls for call in one) / NUM_TRAJECTORIES / 1000
    return [
        Figure(
            f"store, {NUM_TURNS} turns: KB a trajectory, beside {peer}",
            f"{stored.kilobytes_each:.0f}",
            f"{size:.0f}",
            f"{size / stored.kilobytes_each:.1f}",
            aim,
        )
        for peer, size, aim in (
            ("every prompt whole, as JSON", whole, "≥ 8"),
            ("every prompt whole, each call's JSON compressed (zstd-1)", packed, ""),
        )
    ]


def _whole_calls(facts: Facts) -> Iterator[dict[str, object]]:
    """What is known of each call, as those keep it who keep requests and answers."""
    for turn in make_turns(facts):
        yield {
            "messages": turn.messages,
            "answer": turn.answer,
            "prompt_token_ids": turn.ids_before + turn.new_ids,
            "response_token_ids": turn.message.ids,
            "logprobs": turn.message.logprobs,
            "tool_output": turn.seen.words,
        }
