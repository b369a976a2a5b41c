"""What the API answers, as records: of many trajectories, and of one."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.view.answers.compare import DiffAnswer as DiffAnswer
    from agent_layer.view.answers.compare import DiffStep as DiffStep
    from agent_layer.view.answers.compare import ForkNode as ForkNode
    from agent_layer.view.answers.compare import ForksAnswer as ForksAnswer
    from agent_layer.view.answers.details import GroupAnswer as GroupAnswer
    from agent_layer.view.answers.details import LabelLine as LabelLine
    from agent_layer.view.answers.details import Member as Member
    from agent_layer.view.answers.details import ObservationLine as ObservationLine
    from agent_layer.view.answers.details import OutcomeLine as OutcomeLine
    from agent_layer.view.answers.details import RewardLine as RewardLine
    from agent_layer.view.answers.details import SearchAnswer as SearchAnswer
    from agent_layer.view.answers.details import SearchLine as SearchLine
    from agent_layer.view.answers.details import Siblings as Siblings
    from agent_layer.view.answers.details import SnippetPiece as SnippetPiece
    from agent_layer.view.answers.details import StepAnswer as StepAnswer
    from agent_layer.view.answers.details import StepLine as StepLine
    from agent_layer.view.answers.details import TokenPart as TokenPart
    from agent_layer.view.answers.details import TokensAnswer as TokensAnswer
    from agent_layer.view.answers.details import TrajectoryAnswer as TrajectoryAnswer
    from agent_layer.view.answers.details import TrajectoryUpdate as TrajectoryUpdate
    from agent_layer.view.answers.events import Change as Change
    from agent_layer.view.answers.events import ChangeKind as ChangeKind
    from agent_layer.view.answers.fleet import Backlog as Backlog
    from agent_layer.view.answers.fleet import BoxLine as BoxLine
    from agent_layer.view.answers.fleet import BoxList as BoxList
    from agent_layer.view.answers.fleet import DeadLine as DeadLine
    from agent_layer.view.answers.fleet import DeadList as DeadList
    from agent_layer.view.answers.fleet import ErrorCount as ErrorCount
    from agent_layer.view.answers.fleet import LeaseLine as LeaseLine
    from agent_layer.view.answers.fleet import QueueAnswer as QueueAnswer
    from agent_layer.view.answers.fleet import QueueTotals as QueueTotals
    from agent_layer.view.answers.fleet import RunQueue as RunQueue
    from agent_layer.view.answers.fleet import WorkerLine as WorkerLine
    from agent_layer.view.answers.fleet import WorkerList as WorkerList
    from agent_layer.view.answers.learning import ErrorKind as ErrorKind
    from agent_layer.view.answers.learning import FailuresAnswer as FailuresAnswer
    from agent_layer.view.answers.learning import LearningAnswer as LearningAnswer
    from agent_layer.view.answers.learning import LearningPoint as LearningPoint
    from agent_layer.view.answers.learning import Regression as Regression
    from agent_layer.view.answers.lists import AlarmLine as AlarmLine
    from agent_layer.view.answers.lists import Answer as Answer
    from agent_layer.view.answers.lists import Bin as Bin
    from agent_layer.view.answers.lists import CatalogueLine as CatalogueLine
    from agent_layer.view.answers.lists import CatalogueList as CatalogueList
    from agent_layer.view.answers.lists import CountAnswer as CountAnswer
    from agent_layer.view.answers.lists import Counts as Counts
    from agent_layer.view.answers.lists import EngineLine as EngineLine
    from agent_layer.view.answers.lists import EngineList as EngineList
    from agent_layer.view.answers.lists import ExclusionLine as ExclusionLine
    from agent_layer.view.answers.lists import FacetAnswer as FacetAnswer
    from agent_layer.view.answers.lists import FacetLine as FacetLine
    from agent_layer.view.answers.lists import FindingLine as FindingLine
    from agent_layer.view.answers.lists import GroupLine as GroupLine
    from agent_layer.view.answers.lists import Health as Health
    from agent_layer.view.answers.lists import HealthLevel as HealthLevel
    from agent_layer.view.answers.lists import HistogramAnswer as HistogramAnswer
    from agent_layer.view.answers.lists import Info as Info
    from agent_layer.view.answers.lists import Lane as Lane
    from agent_layer.view.answers.lists import Progress as Progress
    from agent_layer.view.answers.lists import QueryAnswer as QueryAnswer
    from agent_layer.view.answers.lists import RoundLine as RoundLine
    from agent_layer.view.answers.lists import RunAnswer as RunAnswer
    from agent_layer.view.answers.lists import RunLine as RunLine
    from agent_layer.view.answers.lists import RunList as RunList
    from agent_layer.view.answers.lists import SummaryAnswer as SummaryAnswer
    from agent_layer.view.answers.lists import SummaryLine as SummaryLine
    from agent_layer.view.answers.lists import UpdateAnswer as UpdateAnswer
    from agent_layer.view.answers.lists import UpdateLine as UpdateLine
    from agent_layer.view.answers.lists import UpdateList as UpdateList
    from agent_layer.view.answers.lists import Version as Version
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.view.answers.compare": (
                "DiffAnswer",
                "DiffStep",
                "ForkNode",
                "ForksAnswer",
            ),
            "agent_layer.view.answers.details": (
                "GroupAnswer",
                "Member",
                "ObservationLine",
                "OutcomeLine",
                "LabelLine",
                "RewardLine",
                "SearchAnswer",
                "SearchLine",
                "Siblings",
                "SnippetPiece",
                "StepAnswer",
                "StepLine",
                "TokenPart",
                "TokensAnswer",
                "TrajectoryAnswer",
                "TrajectoryUpdate",
            ),
            "agent_layer.view.answers.events": (
                "Change",
                "ChangeKind",
            ),
            "agent_layer.view.answers.fleet": (
                "Backlog",
                "BoxLine",
                "BoxList",
                "DeadLine",
                "DeadList",
                "ErrorCount",
                "LeaseLine",
                "QueueAnswer",
                "QueueTotals",
                "RunQueue",
                "WorkerLine",
                "WorkerList",
            ),
            "agent_layer.view.answers.learning": (
                "ErrorKind",
                "FailuresAnswer",
                "LearningAnswer",
                "LearningPoint",
                "Regression",
            ),
            "agent_layer.view.answers.lists": (
                "AlarmLine",
                "Answer",
                "Bin",
                "CatalogueLine",
                "CatalogueList",
                "CountAnswer",
                "Counts",
                "EngineLine",
                "EngineList",
                "ExclusionLine",
                "FacetAnswer",
                "FacetLine",
                "FindingLine",
                "GroupLine",
                "Health",
                "HealthLevel",
                "HistogramAnswer",
                "Info",
                "Lane",
                "Progress",
                "QueryAnswer",
                "RoundLine",
                "RunAnswer",
                "RunLine",
                "RunList",
                "SummaryAnswer",
                "SummaryLine",
                "UpdateAnswer",
                "UpdateLine",
                "UpdateList",
                "Version",
            ),
        },
    )
