"""Joins each Python process of a traced program to the rollout that it was started for.

``agent-layer trace`` puts this directory on PYTHONPATH. A ``sitecustomize`` of the machine, which this one hides, runs
first.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

_here = str(Path(__file__).parent)
_hidden = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != _here])
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(module_from_spec(_hidden))

try:
    import tracer
except ImportError:  # a Python of another environment has none; the gateway sees its calls all the same
    pass
else:
    tracer.init()
