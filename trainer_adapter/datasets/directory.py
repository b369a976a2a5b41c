"""A dataset directory: files of rows and a card, whole under its name or not there at all.

DIR/README.md                     what the rows are, where they come from, what was left out
DIR/sft/train-00000.parquet       one folder for each kind of row
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from agent_layer import __version__
from agent_layer.errors import BadInputError
from agent_layer.infra import make_beside, sync_path
from agent_layer.schema import JsonObject
from trainer_adapter.datasets.rows import SCHEMAS
from trainer_adapter.datasets.selection import Account

Format: TypeAlias = Literal["parquet", "jsonl"]

_BATCH = 256
_PART_ROWS = 65_536
"""Rows of one file."""


class RowFiles:
    """Rows of one kind in numbered files, during the ``with`` block.

    Args:
        directory: is created.
        schema: columns.
        form: of the files; JSON lines have the columns as keys.
    """

    def __init__(self, directory: Path, schema: pa.Schema, form: Format = "parquet") -> None:
        self._directory, self._schema, self._form = directory, schema, form
        self._pending: list[JsonObject] = []
        self._parquet: pq.ParquetWriter | None = None
        self.num_rows = 0

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._flush()
        if self._parquet is not None:
            self._parquet.close()

    def append(self, row: JsonObject) -> None:
        """Add a row."""
        self._pending.append(row)
        self.num_rows += 1
        if len(self._pending) == _BATCH:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        first = self.num_rows - len(self._pending)
        path = self._directory / f"train-{first // _PART_ROWS:05d}.{self._form}"
        if self._form == "jsonl":
            with path.open("ab") as file:
                file.writelines(msgspec.json.encode(row) + b"\n" for row in self._pending)
        else:
            if first % _PART_ROWS == 0:
                if self._parquet is not None:
                    self._parquet.close()
                self._parquet = pq.ParquetWriter(path, self._schema, compression="zstd")
            assert self._parquet is not None  # the first row opens it
            self._parquet.write_table(pa.Table.from_pylist(self._pending, schema=self._schema))
        self._pending = []


@contextmanager
def write_dataset(
    directory: Path, kinds: Sequence[str], form: Format, account: Account, made_by: JsonObject
) -> Generator[dict[str, RowFiles]]:
    """Context manager: files for rows of each kind; at the end of the block the directory has its name and its card.

    Args:
        directory: new or empty.
        kinds: among ``SCHEMAS``.
        form: of the files.
        account: of the selection, complete at the end of the block.
        made_by: filters and options, for the card.

    Raises: BadInputError: something is there, it cannot be written to, or no row was written.
    """
    directory = directory.resolve()
    try:
        is_filled = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
        if is_filled or directory == Path.cwd():
            found = "files" if is_filled else "the current one"
            raise BadInputError(
                f"dataset {directory}: expected a new or empty directory, found {found}; choose another directory"
            )
        with make_beside(directory) as pending:
            with ExitStack() as files:
                made = {kind: files.enter_context(RowFiles(pending / kind, SCHEMAS[kind], form)) for kind in kinds}
                yield made
            if not any(one.num_rows for one in made.values()):
                raise BadInputError(
                    f"dataset {directory}: expected a row, found none in {account.num_found} trajectories"
                    f" ({_list_left_out(account) or 'no filter matches'}); change the filters"
                )
            written = {kind: one.num_rows for kind, one in made.items() if one.num_rows}
            (pending / "README.md").write_text(_write_card(pending, written, form, account, made_by))
            for path in (*pending.rglob("*"), pending):
                sync_path(path)
            pending.replace(directory)
            sync_path(directory.parent)
    except OSError as error:
        raise BadInputError(
            f"dataset {directory}: expected a place that can be written to, found {error.strerror or error}; choose"
            " another, or make room"
        ) from error


def _list_left_out(account: Account) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in account.left_out.most_common())


_KINDS = {
    "sft": "Answers to imitate, one row for each chain of calls. `assistant_masks` is the loss mask: 1 where the policy"
    " sampled the token.\nA rollout that forked has `num_rows` rows, each with the reward of the whole rollout.",
    "pairs": "Two rollouts of one task with the same prompt. `chosen_mask` and `rejected_mask` are loss masks:"
    " 0 where a tool or\nan environment answered. `margin` is the difference of the rewards.",
    "steps": "Single calls of the policy. `step_reward` is the step's own, null where none was given;"
    " `rollout_reward` stands in\neach step of its rollout.",
}


def _write_card(directory: Path, num_rows: dict[str, int], form: Format, account: Account, made_by: JsonObject) -> str:
    """Return the text of the card; its head is what ``datasets`` and the Hub read."""
    sizes = {kind: sum(path.stat().st_size for path in (directory / kind).iterdir()) for kind in num_rows}
    head: JsonObject = {
        "configs": [
            {"config_name": kind, "data_files": [{"split": "train", "path": f"{kind}/*.{form}"}]} for kind in num_rows
        ],
        "dataset_info": [
            {
                "config_name": kind,
                "features": [*map(_describe_column, SCHEMAS[kind].names, SCHEMAS[kind].types)],
                "splits": [{"name": "train", "num_bytes": sizes[kind], "num_examples": number}],
                "dataset_size": sizes[kind],
            }
            for kind, number in num_rows.items()
        ],
    }
    span = f"{min(account.versions)} to {max(account.versions)}" if account.versions else "not known"
    lines = [
        "# Trajectories of agents",
        "",
        f"Written by agent-layer {__version__}. Token ids, log-probabilities and masks are those of the engine:",
        "nothing was tokenised again.",
        "",
        "Licence: not stated. It follows from the model, the tasks and the tools; add it before you publish.",
        "",
        *(f"* `{kind}`: {num_rows[kind]:,} rows. {_KINDS[kind]}" for kind in num_rows),
        "",
        "| what | value |",
        "|---|---|",
        f"| trajectories that match the filters | {account.num_found:,} |",
        *(f"| {name} | `{msgspec.json.encode(value).decode()}` |" for name, value in made_by.items()),
        f"| policy versions | {span} |",
        f"| models | {', '.join(sorted(account.model_names)) or 'not known'} |",
        f"| tokenizers (hash) | {', '.join(sorted(account.tokenizer_hashes)) or 'not known'} |",
        "",
    ]
    if account.left_out:
        of_kind = " (`not_best` from sft; `no_pair` and `several_rows` from pairs)" if len(num_rows) > 1 else ""
        lines += [f"Left out{of_kind}:", "", "| reason | trajectories | the first |", "|---|---|---|"]
        lines += [
            f"| {kind} | {number:,} | {account.reasons[kind].replace('|', '/')} |"
            for kind, number in account.left_out.most_common()
        ]
    return "\n".join(["---", msgspec.yaml.encode(head).decode().rstrip(), "---", *lines, ""])


def _describe_column(name: str, kind: pa.DataType) -> JsonObject:
    """Return its type in the words of ``datasets``, which takes that of JSON lines from the first file otherwise."""
    item = str(kind).removesuffix(">").rpartition(": ")[2]  # list<element: int32>
    word = "dtype" if item == str(kind) else "sequence"
    return {"name": name, word: {"float": "float32", "double": "float64"}.get(item, item)}
