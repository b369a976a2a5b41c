# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .launch import plan_on_ray as plan_on_ray, train_on_ray as train_on_ray
