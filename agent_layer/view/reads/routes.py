"""The table of routes: address, function, answer, parameters. Application and OpenAPI document follow from it."""

from collections.abc import Callable
from typing import Final, NamedTuple

from agent_layer.view.answers.compare import DiffAnswer, ForksAnswer
from agent_layer.view.answers.details import GroupAnswer, SearchAnswer, StepAnswer, TokensAnswer, TrajectoryAnswer
from agent_layer.view.answers.fleet import BoxList, DeadList, QueueAnswer, WorkerList
from agent_layer.view.answers.learning import FailuresAnswer, LearningAnswer
from agent_layer.view.answers.lists import (
    Answer,
    CatalogueList,
    CountAnswer,
    EngineList,
    FacetAnswer,
    HistogramAnswer,
    Info,
    Progress,
    QueryAnswer,
    RunAnswer,
    RunList,
    SummaryAnswer,
    UpdateAnswer,
    UpdateList,
)
from agent_layer.view.reads import fleet, groups, lists, runs, trajectories, updates
from agent_layer.view.reads.overviews.failures import show_failures
from agent_layer.view.reads.overviews.learning import show_learning
from agent_layer.view.reads.params import FILTERS, RequestParams
from agent_layer.view.reads.source import ReadContext
from agent_layer.view.reads.tokens.diff import show_diff
from agent_layer.view.reads.tokens.forks import show_forks
from agent_layer.view.reads.tokens.tokens import show_step_tokens, show_tokens

PREFIX: Final = "/api/v1"


class Route(NamedTuple):
    """One address."""

    path: str
    """Below ``PREFIX``; parts in braces are names."""
    read: Callable[[ReadContext, RequestParams], Answer]
    answer: type[Answer]
    parameters: tuple[str, ...] = ()
    is_of_index: bool = False
    """Whether the answer follows from the index and the parameters alone, so that it is made once for each state."""


ROUTES: Final = (
    Route("/info", runs.info, Info),
    Route("/runs", runs.list_runs, RunList),
    Route("/runs/{run}", runs.show_run, RunAnswer),
    Route("/runs/{run}/progress", runs.progress, Progress, ("after",)),
    Route("/runs/{run}/updates", runs.list_updates, UpdateList),
    Route("/runs/{run}/updates/{step}", updates.show_update, UpdateAnswer),
    Route("/query", lists.query, QueryAnswer, (*FILTERS, "order", "limit", "cursor"), is_of_index=True),
    Route("/search", lists.search, SearchAnswer, ("text", *FILTERS, "limit", "cursor")),
    Route("/count", lists.count, CountAnswer, FILTERS, is_of_index=True),
    Route("/facets", lists.facets, FacetAnswer, (*FILTERS, "fields"), is_of_index=True),
    Route("/histogram", lists.histogram, HistogramAnswer, (*FILTERS, "bins"), is_of_index=True),
    Route("/summary", lists.summary, SummaryAnswer, (*FILTERS, "by"), is_of_index=True),
    Route("/trajectories/{trajectory}", trajectories.show_trajectory, TrajectoryAnswer),
    Route("/trajectories/{trajectory}/steps/{step}", trajectories.show_step, StepAnswer),
    Route("/trajectories/{trajectory}/steps/{step}/tokens", show_step_tokens, TokensAnswer, ("from", "to")),
    Route("/trajectories/{trajectory}/tokens", show_tokens, TokensAnswer, ("from", "to")),
    Route("/trajectories/{trajectory}/forks", show_forks, ForksAnswer),
    Route("/groups/{group}", groups.show_group, GroupAnswer),
    Route("/runs/{run}/learning", show_learning, LearningAnswer, ("by", "split")),
    Route("/failures", show_failures, FailuresAnswer, FILTERS),
    Route("/diff", show_diff, DiffAnswer, ("a", "b")),
    Route("/workers", fleet.list_workers, WorkerList),
    Route("/queue", fleet.show_queue, QueueAnswer),
    Route("/dead", fleet.list_dead, DeadList, ("limit",)),
    Route("/sandboxes", fleet.list_sandboxes, BoxList),
    Route("/engines", runs.list_engines, EngineList),
    Route("/health/catalogue", runs.list_catalogue, CatalogueList),
)
