"""Rows of an exported dataset as a trainer reads them, each checked against the model."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import Meta
from pyarrow.parquet import ParquetFile

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE, TokenIds
from trainer_adapter.data import ModelBounds
from trainer_adapter.supervised.config import Method

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyarrow carries no types.

_Id: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
_Mask: TypeAlias = Literal[0, 1]
_BATCH = 256


class SupervisedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Token ids of one row, and which of them are trained."""

    prompt_ids: TokenIds
    """[num_prompt_tokens]; never empty."""
    response_ids: TokenIds
    """[num_response_tokens]."""
    loss_mask: TokenIds
    """[num_response_tokens]."""
    trajectory_id: str | None = None
    """None: the dataset does not say."""
    group_id: str | None = None

    @property
    def num_tokens(self) -> int:
        """Of prompt and response."""
        return len(self.prompt_ids) + len(self.response_ids)


class _Answer(msgspec.Struct):
    """Row of ``sft``."""

    input_ids: list[_Id]
    assistant_masks: list[_Mask]
    trajectory_id: str | None = None
    group_id: str | None = None

    def split(self) -> list[SupervisedRow]:
        mask = self.assistant_masks
        first = next((place for place, one in enumerate(mask) if one), len(mask))
        origin = self.trajectory_id, self.group_id
        return [_make_row(self.input_ids[:first], self.input_ids[first:], mask[first:], *origin)]


class _Preference(msgspec.Struct):
    """Row of ``pairs``."""

    prompt_ids: list[_Id]
    chosen_ids: list[_Id]
    chosen_mask: list[_Mask]
    rejected_ids: list[_Id]
    rejected_mask: list[_Mask]
    chosen_trajectory_id: str | None = None
    rejected_trajectory_id: str | None = None
    group_id: str | None = None

    def split(self) -> list[SupervisedRow]:
        return [
            _make_row(self.prompt_ids, self.chosen_ids, self.chosen_mask, self.chosen_trajectory_id, self.group_id),
            _make_row(
                self.prompt_ids, self.rejected_ids, self.rejected_mask, self.rejected_trajectory_id, self.group_id
            ),
        ]


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
    folder, kind = ("sft", _Answer) if method == "sft" else ("pairs", _Preference)
    examples: list[list[SupervisedRow]] = []
    num_long = 0
    for number, row in enumerate(_read_rows(directory / folder, kind)):
        example = row.split()
        if max_tokens is not None and max(one.num_tokens for one in example) > max_tokens:
            num_long += 1
            continue
        for one in example:
            _check(one, bounds, f"dataset {directory}: row {number} of {folder}")
        examples.append(example)
    if not examples:
        found = f"none; write them with 'agent-layer store export {folder} DIR'"
        if num_long:
            found = f"all {num_long} above optimizer.max_row_tokens: {max_tokens}; raise it"
        raise BadInputError(f"dataset {directory}: expected rows in {folder}/, found {found}")
    return examples, num_long


def _read_rows(folder: Path, kind: type[_Answer | _Preference]) -> Iterator[_Answer | _Preference]:
    columns = list(kind.__struct_fields__)
    required = [one.name for one in msgspec.structs.fields(kind) if one.required]
    for file in sorted([*folder.glob("*.parquet"), *folder.glob("*.jsonl")]):
        try:
            if file.suffix == ".jsonl":
                with file.open("rb") as lines:
                    yield from (msgspec.json.decode(line, type=kind) for line in lines)
            else:
                with ParquetFile(file) as opened:
                    for batch in opened.iter_batches(_BATCH, columns=columns):
                        yield from (msgspec.convert(row, kind) for row in batch.to_pylist())
        except (msgspec.MsgspecError, *UNREADABLE, pa.ArrowException, OSError) as error:
            raise BadInputError(
                f"dataset {file}: expected the columns {', '.join(required)}, found: {error}; export it again"
            ) from error


def _make_row(
    prompt: Sequence[int],
    response: Sequence[int],
    mask: Sequence[int],
    trajectory_id: str | None,
    group_id: str | None,
) -> SupervisedRow:
    return SupervisedRow(
        prompt_ids=TokenIds(prompt),
        response_ids=TokenIds(response),
        loss_mask=TokenIds(mask),
        trajectory_id=trajectory_id,
        group_id=group_id,
    )


def _check(row: SupervisedRow, bounds: ModelBounds, subject: str) -> None:
    """Raise BadInputError for a row that the model cannot read, or that teaches nothing."""
    ids, end = [*row.prompt_ids, *row.response_ids], bounds.vocab_size or 2**31
    if not row.prompt_ids or not any(row.loss_mask) or len(row.loss_mask) != len(row.response_ids):
        raise BadInputError(
            f"{subject}: expected a prompt, an answer with a trained token and a mask as long, found"
            f" {len(row.prompt_ids)}, {len(row.response_ids)} and {len(row.loss_mask)} tokens; export it again"
        )
    if max(ids) >= end:
        raise BadInputError(
            f"{subject}: expected token ids below the model's {end}, found {max(ids)}; train the model whose tokenizer"
            " the card names"
        )
    if bounds.max_positions is not None and len(ids) > bounds.max_positions:
        raise BadInputError(
            f"{subject}: expected at most the model's {bounds.max_positions} positions, found {len(ids)}; set"
            f" optimizer.max_row_tokens: {bounds.max_positions}"
        )
