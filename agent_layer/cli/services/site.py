"""Command that writes a static copy of the page: ``view export``."""

import signal
import time
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from redis.exceptions import NoPermissionError

from agent_layer.cli.services.view import open_shown
from agent_layer.cli.ui.output import describe_size, show_progress
from agent_layer.errors import BadInputError, CorruptRecordError, NotFoundError, UnreachableError
from agent_layer.infra import format_count
from agent_layer.settings import Settings
from agent_layer.store import Filters, Order, Store, TrajectoryRow, parse_which, takes_filters
from agent_layer.view import RequestParams, Selection, query_parameters, write_site

_MAX_ITEMS = 10_000
_PAGE = 500


@takes_filters
def export(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="New, empty, or an earlier export, which is replaced.")
    ],
    *,
    filters: Filters,
    step: Annotated[
        str | None,
        typer.Option(help="Only those that have this step: an index from 0, last, or tool:NAME."),
    ] = None,
    order: Annotated[
        str, typer.Option(help="newest, oldest, reward (best first) or policy (latest first).")
    ] = "newest",
    limit: Annotated[
        int, typer.Option(min=1, max=_MAX_ITEMS, help="Most trajectories; each has files of its own.")
    ] = 1_000,
    bucket: Annotated[
        str | None, typer.Option(help="Ask what s3://BUCKET/PREFIX or file:///DIR holds, without its Redis.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Ask the recorded run that ships with the package.")] = False,
) -> None:
    """Write the page over matching trajectories into a directory that a browser opens without a server.

    Open DIR/index.html, send the directory, or put it on any web server. It has the trajectories with their steps,
    tokens and forks, and their runs, groups and updates. What needs the store is not there, and the page says so. The
    grading of tasks is never in it; prompts and answers are, so look before you publish.

    DIR is written beside and renamed at the end: Ctrl-C leaves what was there.

    agent-layer view export failures --run r1 --status failed --limit 50
    """
    if order not in get_args(Order):
        raise BadInputError(f"--order {order}: expected one of {', '.join(get_args(Order))}; correct it")
    if demo and bucket is not None:
        raise BadInputError("view export: expected one of --demo or --bucket, found both; leave one out")
    settings: Settings = context.obj
    run = filters.get("run")
    step_filters: Filters = {**filters, "step": None if step is None else parse_which(step)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    configured = settings.model_copy(update={"reader_redis_url": None})
    with open_shown(configured, demo, bucket) as shown:
        _check_role(shown.store)
        source = shown if run is None else shown.of_run(run)
        selection = _select(source.store, step_filters, cast("Order", order), limit)
        left_out: list[CorruptRecordError | NotFoundError] = []
        with show_progress("trajectories") as progress:
            report = write_site(source, directory, selection, on_progress=progress, on_left_out=left_out.append)
        cooled = sorted(shown.cooled_runs())
    size_text = f"{format_count(report.num_trajectories, 'trajectory')}, {describe_size(report.num_bytes)}"
    typer.echo(f"{(directory / 'index.html').resolve().as_uri()}  {size_text}")
    if run is None and cooled:
        typer.echo(f"left out: runs that only the bucket has; --run exports one of them: {', '.join(cooled)}", err=True)
    if selection.num_matching > limit:
        typer.echo(
            f"not all: {selection.num_matching:,} match, the first {limit:,} of order {order} are in it; narrow the"
            f" query, or ask for up to {_MAX_ITEMS:,} with --limit",
            err=True,
        )
    for error in left_out:
        typer.echo(f"left out: {error}", err=True)
    if left_out:
        raise typer.Exit(1)


def _check_role(store: Store) -> None:  # kept: how a role is recognised is its docstring
    """Check that Redis knows the caller as operator: of all roles, that one alone may ask for a length.

    Raises: BadInputError: it is another role.
    """
    try:
        store.redis.strlen(store.keys.merging)
    except UnreachableError as error:
        if not isinstance(error.__cause__, NoPermissionError):
            raise
        raise BadInputError(
            "view export: expected the operator's user of Redis, found one that may only read; set"
            " AGENT_LAYER_REDIS_URL to it ('agent-layer store acl --role operator')"
        ) from error


def _select(store: Store, filters: Filters, order: Order, limit: int) -> Selection:
    """Return the matching trajectories, and the query as the page shows it.

    Raises: BadInputError: none matches, or a filter is not valid.
    """
    at = time.time()
    rows: list[TrajectoryRow] = []
    cursor: str | None = None
    while len(rows) < limit:
        page = store.query(order=order, limit=min(_PAGE, limit - len(rows)), cursor=cursor, **filters)
        rows += page.items
        if (cursor := page.cursor) is None:
            break
    if not rows:
        raise BadInputError("view export: expected a query that finds a trajectory, found none; remove a filter")
    query: dict[str, list[str]] = {}
    for name, value in query_parameters(filters):
        query.setdefault(name, []).append(value)
    params = RequestParams({}, query)
    return Selection(rows, store.count(**filters), params.command(order, limit), params.python(order, limit), at)
