"""The teacher of a run: checked at its start, then asked about each row of each group.

Rows of a group are asked about at the same time, up to ``concurrency``. While a server does not answer, each row is
asked about again. After ``patience_seconds`` without any answer the rows that are left stay without one.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from agent_layer.engines import TeacherEngine, read_engine_address
from agent_layer.errors import BadInputError, EngineError, UnreachableError
from agent_layer.infra import Backoff
from agent_layer.schema import TokenIds
from agent_layer.settings import Settings
from trainer_adapter.config import TrainConfig
from trainer_adapter.teacher.targets import Scores, Silence

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# tokenizers carries no types.

_BACKOFF: Final = Backoff(first_seconds=0.25, max_seconds=10.0)
_TOKENIZER: Final = "tokenizer.json"
_COMPARED_AT_ONCE: Final = 8192
"""Token ids whose text is asked for in one request."""
_PROBE: Final = 2
"""Tokens of the row that shows at the start that log-probabilities of prompts come back."""


class Teacher:
    """A teacher whose server answers.

    Args:
        engine: serves it.
        concurrency: rows that it is asked about at a time.
        patience_seconds: without any answer, until rows stay without one.
        clock: monotonic.
    """

    def __init__(
        self,
        engine: TeacherEngine,
        *,
        concurrency: int,
        patience_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._concurrency = concurrency
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._answered_at = clock()

    def score(self, rows: Sequence[TokenIds], stop: Callable[[], bool] = lambda: False) -> list[Scores]:
        """Return the log-probability of each token but the first of each row, or why there are none.

        Args:
            rows: each at least two tokens.
            stop: polled between two tries; once True, rows stay without an answer.
        """
        self._answered_at = self._clock()
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="teacher") as pool:
            return list(pool.map(partial(self._score, stop), rows))

    def _score(self, stop: Callable[[], bool], row: TokenIds) -> Scores:
        failures = 0
        while True:
            try:
                found = self._engine.score(row)
            except EngineError as error:
                return Silence("no_teacher", str(error))
            except UnreachableError as error:
                failures += 1
                silent_seconds = self._clock() - self._answered_at
                if stop() or silent_seconds >= self._patience_seconds:
                    return Silence("no_teacher", f"no answer for {silent_seconds:.0f} s: {error}")
                time.sleep(_BACKOFF.delay_seconds(failures))
                continue
            self._answered_at = self._clock()
            return found


def open_teacher(config: TrainConfig, settings: Settings) -> Teacher | None:
    """Return the teacher of a run, after a look at its server; None: the run has none.

    Args:
        config: of the run.
        settings: hold the key of the server.

    Raises:
        BadInputError: it has other models, or another vocabulary. EngineError: it returns no log-probabilities of
            prompts. UnreachableError: it does not answer.
    """
    if config.algorithm.distill is None:
        return None
    teacher_config = config.algorithm.distill.teacher
    engine = TeacherEngine(read_engine_address(teacher_config.url), teacher_config.model, settings.teacher_key)
    engine.check_model()
    _compare_vocabularies(engine, config.model)
    engine.score(TokenIds(range(_PROBE)))
    return Teacher(engine, concurrency=teacher_config.concurrency, patience_seconds=teacher_config.patience_seconds)


def _compare_vocabularies(engine: TeacherEngine, model: Path) -> None:  # kept: a step of a narrative, and why
    """Raise unless each token of the model is the same text for the teacher, by which its vocabulary may be larger.

    A server returns no hash of its tokenizer, and two models of a family differ in files that change no token.
    """
    for token_ids, text in _decode_texts(model):
        found = engine.decode(token_ids)
        if _without_spaces(found) != _without_spaces(text):
            raise BadInputError(
                f"teacher {engine.url}: expected the vocabulary of {model}, found other text for its tokens"
                f" {token_ids[0]} to {token_ids[-1]}: {_difference(text, found)}; a teacher judges token ids, so choose"
                " one with the same tokenizer"
            )


def _decode_texts(model: Path) -> Iterator[tuple[list[int], str]]:
    """Yield token ids of a model's vocabulary and their text, until all ids are covered."""
    from tokenizers import Tokenizer  # noqa: PLC0415  # comes with the extra 'train'

    if not (model / _TOKENIZER).is_file():
        raise BadInputError(
            f"model {model}: expected {_TOKENIZER}, by which its vocabulary is compared with the teacher's, found none;"
            " save its tokenizer with transformers, which writes that file"
        )
    tokenizer = Tokenizer.from_file(str(model / _TOKENIZER))
    token_ids = sorted(tokenizer.get_vocab(with_added_tokens=True).values())
    for start in range(0, len(token_ids), _COMPARED_AT_ONCE):
        part = token_ids[start : start + _COMPARED_AT_ONCE]
        yield part, tokenizer.decode(part, skip_special_tokens=False)


def _without_spaces(text: str) -> str:
    """Return the text without spaces, which some tokenizers clean up when they decode."""
    return "".join(text.split())


def _difference(expected: str, found: str) -> str:
    """Return where two texts begin to differ, for an error."""
    at = next((place for place, (one, other) in enumerate(zip(expected, found, strict=False)) if one != other), 0)
    return f"{expected[at : at + 12]!r} here, {found[at : at + 12]!r} there"
