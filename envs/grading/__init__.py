"""Grades that cannot be forged: scorers that never share an interpreter with what they judge.

``__all__`` names what users import; the other names serve other rooms.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "calling": "final_answer",
        "forgeries": "common_answers common_cheats",
        "hidden_tests": "HiddenTests",
        "patches": "PatchScorer",
        "plain": "equal_values",
        "prepared_box": "prepare_box",
        "programs": "ProgramScorer",
        "repository_tests": "RepositoryTests",
        "rubric": "Criterion JudgeScorer Ranking Rubric",
        "scorer": "GroupScorer Scorer ScoringContext Verdict",
        "values": "Answer Call Case ValueScorer call_functions",
    },
    {
        "box": "TakeBox",
        "calling": (
            "AnyScorer call_function call_scorer can_score has_shared_judge only_reward plain_result read_scores"
            " zero_scores"
        ),
        "judge_calls": "JUDGED JudgeCalls judge_run",
        "plain": "ForgedJsonError read_json",
        "prepared_box": "UnfitArtifactsError archive_files",
        "run": "ScoringRun",
        "scorer": "Judgement",
    },
)
