"""On-policy distillation: a teacher's log-probability of each token that the policy sampled."""

from agent_layer.lazy import face

__getattr__, __all__ = face(__name__, {"targets": "judge_group", "teacher": "Teacher open_teacher"})
