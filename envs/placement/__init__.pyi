# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .placer import Where as Where, Workforce as Workforce, run_workers as run_workers
from .ray import join_ray as join_ray
