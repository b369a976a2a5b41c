"""Runs that a store's Redis lost or that were cooled, while it has others: which source answers a question.

An index of its own covers the segments that Redis does not know. Each run, trajectory and group is read from one of
both; Redis comes first, as it changes.
"""

from collections import Counter
from collections.abc import Sequence

from agent_layer.infra import batched
from agent_layer.view.reads.groups import has_group
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import Cooled, ReadContext

_PAGE = 512


def find_cooled(live: ReadContext, bucket: ReadContext) -> Cooled | None:
    """Return what the bucket has beyond Redis; None: nothing, so what it was made of was on its way into Redis."""
    runs: Counter[str] = Counter()
    for page in batched(bucket.store.scan(), _PAGE):
        known = {row.trajectory_id for row in live.index.rows(row.trajectory_id for row in page)}
        runs.update(row.run for row in page if row.run is not None and row.trajectory_id not in known)
    return Cooled(bucket, runs) if runs else None


def source_for(source: ReadContext, params: RequestParams) -> ReadContext:
    """Return what answers a question; a question without a run, trajectory or group is for Redis."""
    if source.cooled is None:
        return source
    runs: Sequence[str] = [params.path["run"]] if "run" in params.path else params.query.get("run", ())
    if len(runs) == 1:
        return source.of_run(runs[0])
    if (trajectory := params.path.get("trajectory")) is not None:
        return source.of_trajectory(trajectory)
    if (group := params.path.get("group")) is not None:
        is_cooled = not has_group(source, group) and has_group(source.cooled.source, group)
        return source.cooled.source if is_cooled else source
    return source
