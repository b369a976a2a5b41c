# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .box import TakeBox as TakeBox
from .calling import AnyScorer as AnyScorer, call_function as call_function, call_scorer as call_scorer
from .calling import can_score as can_score, final_answer as final_answer, has_shared_judge as has_shared_judge
from .calling import only_reward as only_reward, plain_result as plain_result, read_scores as read_scores
from .calling import zero_scores as zero_scores
from .forgeries import common_answers as common_answers, common_cheats as common_cheats
from .hidden_tests import HiddenTests as HiddenTests
from .judge_calls import JUDGED as JUDGED, JudgeCalls as JudgeCalls, judge_run as judge_run
from .patches import PatchScorer as PatchScorer
from .plain import ForgedJsonError as ForgedJsonError, equal_values as equal_values, read_json as read_json
from .prepared_box import UnfitArtifactsError as UnfitArtifactsError, archive_files as archive_files
from .prepared_box import prepare_box as prepare_box
from .programs import ProgramScorer as ProgramScorer
from .repository_tests import RepositoryTests as RepositoryTests
from .rubric import Criterion as Criterion, JudgeScorer as JudgeScorer, Ranking as Ranking, Rubric as Rubric
from .run import ScoringRun as ScoringRun
from .scorer import GroupScorer as GroupScorer, Judgement as Judgement, Scorer as Scorer
from .scorer import ScoringContext as ScoringContext, Verdict as Verdict
from .values import Answer as Answer, Call as Call, Case as Case, ValueScorer as ValueScorer
from .values import call_functions as call_functions
__all__ = [
    "Answer", "Call", "Case", "Criterion", "GroupScorer", "HiddenTests", "JudgeScorer", "PatchScorer", "ProgramScorer",
    "Ranking", "RepositoryTests", "Rubric", "Scorer", "ScoringContext", "ValueScorer", "Verdict", "call_functions",
    "common_answers", "common_cheats", "equal_values", "final_answer", "prepare_box",
]
