"""Rows of an exported dataset as a trainer reads them, each checked against the model."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pyarrow as pa
from pyarrow.dataset import JsonFileFormat, ParquetFileFormat, dataset

from agent_layer.errors import BadInputError
from agent_layer.schema import TokenIds
from trainer_adapter.data import ModelBounds
from trainer_adapter.supervised.config import Method

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyarrow carries no types.

_COLUMNS = {
    "sft": ["input_ids", "assistant_masks"],
    "dpo": ["prompt_ids", "chosen_ids", "chosen_mask", "rejected_ids", "rejected_mask"],
}
_FOLDERS = {"sft": "sft", "dpo": "pairs"}


class SupervisedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Token ids of one row, and which of them are trained."""

    prompt_ids: TokenIds
    """[num_prompt_tokens]; never empty."""
    response_ids: TokenIds
    """[num_response_tokens]."""
    loss_mask: TokenIds
    """[num_response_tokens]."""

    @property
    def num_tokens(self) -> int:
        """Of prompt and response."""
        return len(self.prompt_ids) + len(self.response_ids)


def read_examples(
    directory: Path, method: Method, bounds: ModelBounds, max_tokens: int | None
) -> tuple[list[list[SupervisedRow]], int]:
    """Return the examples of a dataset, one row each with SFT, chosen and rejected with DPO; and how many are too long.

    Args:
        directory: of the dataset.
        method: decides which rows.
        bounds: of the model.
        max_tokens: examples with a longer row are left out; None: no limit.

    Raises: BadInputError: there are no such rows, or one does not fit the model.
    """
    folder = directory / _FOLDERS[method]
    files = sorted([*folder.glob("*.parquet"), *folder.glob("*.jsonl")])
    if not files:
        raise BadInputError(
            f"dataset {directory}: expected rows in {folder.name}/, found none; write them with 'agent-layer store"
            f" export {folder.name} DIR'"
        )
    examples: list[list[SupervisedRow]] = []
    num_long = 0
    for number, row in enumerate(_read_files(files, _COLUMNS[method])):
        example = _split(row) if method == "sft" else _pair(row)
        for one in example:
            _check(one, bounds, f"dataset {directory}: row {number} of {folder.name}")
        if max_tokens is not None and max(one.num_tokens for one in example) > max_tokens:
            num_long += 1
        else:
            examples.append(example)
    if not examples:
        raise BadInputError(
            f"dataset {directory}: expected a row of at most {max_tokens} tokens, found none among {num_long}; raise"
            " optimizer.max_row_tokens"
        )
    return examples, num_long


def _read_files(files: Sequence[Path], columns: Sequence[str]) -> Iterator[Mapping[str, Sequence[int]]]:
    form = JsonFileFormat() if files[0].suffix == ".jsonl" else ParquetFileFormat()
    try:
        table = dataset([str(file) for file in files], format=form)
        for batch in table.to_batches(columns=list(columns)):
            yield from cast("list[Mapping[str, Sequence[int]]]", batch.to_pylist())
    except (pa.ArrowException, OSError) as error:
        raise BadInputError(
            f"dataset {files[0].parent}: expected the columns {', '.join(columns)}, found {error}; export it again"
        ) from error


def _split(row: Mapping[str, Sequence[int]]) -> list[SupervisedRow]:
    ids, mask = row["input_ids"], row["assistant_masks"]
    first = next((place for place, one in enumerate(mask) if one), len(mask))
    return [_make_row(ids[:first], ids[first:], mask[first:])]


def _pair(row: Mapping[str, Sequence[int]]) -> list[SupervisedRow]:
    return [_make_row(row["prompt_ids"], row[f"{side}_ids"], row[f"{side}_mask"]) for side in ("chosen", "rejected")]


def _make_row(prompt: Sequence[int], response: Sequence[int], mask: Sequence[int]) -> SupervisedRow:
    return SupervisedRow(prompt_ids=TokenIds(prompt), response_ids=TokenIds(response), loss_mask=TokenIds(mask))


def _check(row: SupervisedRow, bounds: ModelBounds, subject: str) -> None:
    """Raise BadInputError for a row that the model cannot read, or that teaches nothing."""
    ids, end = [*row.prompt_ids, *row.response_ids], bounds.vocab_size or 2**31
    if not row.prompt_ids or not any(row.loss_mask) or len(row.loss_mask) != len(row.response_ids):
        raise BadInputError(
            f"{subject}: expected a prompt, an answer with a trained token and a mask as long, found"
            f" {len(row.prompt_ids)}, {len(row.response_ids)} and {len(row.loss_mask)} tokens; export it again"
        )
    if not 0 <= min(ids) <= max(ids) < end:
        raise BadInputError(
            f"{subject}: expected token ids below the model's {end}, found {max(ids)}; train the model whose tokenizer"
            " the card names"
        )
    if bounds.max_positions is not None and len(ids) > bounds.max_positions:
        raise BadInputError(
            f"{subject}: expected at most the model's {bounds.max_positions} positions, found {len(ids)}; set"
            f" optimizer.max_row_tokens: {bounds.max_positions}"
        )
