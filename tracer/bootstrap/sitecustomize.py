"""Joins each Python process of a traced program to the rollout that it was started for.

``agent-layer trace`` puts this directory on PYTHONPATH. A ``sitecustomize`` of the machine, which this one hides, runs
first.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path


def _run_hidden() -> None:
    here = str(Path(__file__).parent)
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


def _join() -> None:
    try:
        import tracer  # noqa: PLC0415 - a Python of another environment has none; the gateway sees its calls all the same
    except ImportError:
        return
    tracer.init()


_run_hidden()
_join()
