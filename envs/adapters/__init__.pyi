# Written from the table in __init__.py by .ci/write_faces.py ('make format').

