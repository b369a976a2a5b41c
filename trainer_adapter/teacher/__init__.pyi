# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .targets import judge_group as judge_group
from .teacher import Teacher as Teacher, open_teacher as open_teacher
