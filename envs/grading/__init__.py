"""Grades that cannot be forged: scorers that never share an interpreter with what they judge.

``__all__`` names what users import; the other names serve other rooms.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.grading.box import TakeBox as TakeBox
    from envs.grading.calling import AnyScorer as AnyScorer
    from envs.grading.calling import ScorerFunction as ScorerFunction
    from envs.grading.calling import call_scorer as call_scorer
    from envs.grading.calling import can_score as can_score
    from envs.grading.calling import only_reward as only_reward
    from envs.grading.calling import plain_result as plain_result
    from envs.grading.calling import read_scores as read_scores
    from envs.grading.calling import read_verdict as read_verdict
    from envs.grading.forgeries import common_cheats as common_cheats
    from envs.grading.hidden_tests import HiddenTests as HiddenTests
    from envs.grading.judge_calls import JUDGED as JUDGED
    from envs.grading.judge_calls import JudgeCalls as JudgeCalls
    from envs.grading.judge_calls import judge_run as judge_run
    from envs.grading.plain import ForgedJsonError as ForgedJsonError
    from envs.grading.plain import equal_values as equal_values
    from envs.grading.prepared_box import UnfitArtifactsError as UnfitArtifactsError
    from envs.grading.prepared_box import archive_files as archive_files
    from envs.grading.prepared_box import prepare_box as prepare_box
    from envs.grading.rubric import Criterion as Criterion
    from envs.grading.rubric import JudgeScorer as JudgeScorer
    from envs.grading.rubric import Ranking as Ranking
    from envs.grading.rubric import Rubric as Rubric
    from envs.grading.run import ScoringRun as ScoringRun
    from envs.grading.scorer import GroupScorer as GroupScorer
    from envs.grading.scorer import Judgement as Judgement
    from envs.grading.scorer import Scorer as Scorer
    from envs.grading.scorer import ScoringContext as ScoringContext
    from envs.grading.scorer import Verdict as Verdict
    from envs.grading.values import Answer as Answer
    from envs.grading.values import Call as Call
    from envs.grading.values import Case as Case
    from envs.grading.values import ValueScorer as ValueScorer
    from envs.grading.values import call_functions as call_functions
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.grading.box": ("TakeBox",),
            "envs.grading.calling": (
                "AnyScorer",
                "ScorerFunction",
                "call_scorer",
                "can_score",
                "only_reward",
                "plain_result",
                "read_scores",
                "read_verdict",
            ),
            "envs.grading.forgeries": ("common_cheats",),
            "envs.grading.hidden_tests": ("HiddenTests",),
            "envs.grading.judge_calls": ("JUDGED", "JudgeCalls", "judge_run"),
            "envs.grading.plain": (
                "ForgedJsonError",
                "equal_values",
            ),
            "envs.grading.prepared_box": (
                "UnfitArtifactsError",
                "archive_files",
                "prepare_box",
            ),
            "envs.grading.rubric": (
                "Criterion",
                "JudgeScorer",
                "Ranking",
                "Rubric",
            ),
            "envs.grading.run": ("ScoringRun",),
            "envs.grading.scorer": (
                "GroupScorer",
                "Judgement",
                "Scorer",
                "ScoringContext",
                "Verdict",
            ),
            "envs.grading.values": (
                "Answer",
                "Call",
                "Case",
                "ValueScorer",
                "call_functions",
            ),
        },
    )

__all__ = [
    "Answer",
    "Call",
    "Case",
    "Criterion",
    "GroupScorer",
    "HiddenTests",
    "JudgeScorer",
    "Ranking",
    "Rubric",
    "Scorer",
    "ScoringContext",
    "ValueScorer",
    "Verdict",
    "call_functions",
    "common_cheats",
    "equal_values",
    "prepare_box",
]
