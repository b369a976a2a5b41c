"""The page on what is not trainable names every finding, and every kind of rollout that is left out."""

import ast
import re
from typing import get_args

import pytest

from agent_layer.gateway.rollouts.divergence import BreakCause
from agent_layer.schema import MEDIA
from trainer_adapter.data.exclusions import _REASONS

from ...documents import ROOT

PAGE = (ROOT / "docs/how-to/trainable-rollouts.md").read_text()
NAMED = {name.partition(":")[0] for name in re.findall(r"`([a-z_]+(?::[\w.]*| ?)?)", PAGE)}
_DOCUMENTED = re.compile(r"Findings? of|Kind of a rollout|Why .* (is|are) not trained")


def list_constants():
    """Constants whose docstring says that they are a finding, or a kind of rollout that is left out."""
    for package in ("agent_layer", "envs", "tracer", "trainer_adapter"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for one, after in zip(body := ast.parse(path.read_text()).body, body[1:], strict=False):
                value = getattr(one, "value", None)
                is_text = isinstance(one, ast.Assign | ast.AnnAssign) and isinstance(value, ast.Constant)
                docstring = (
                    after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
                )
                if (
                    is_text
                    and isinstance(value.value, str)
                    and isinstance(docstring, str)
                    and _DOCUMENTED.match(docstring)
                ):
                    yield value.value.partition(":")[0]


CONSTANTS = sorted(set(list_constants()))


def test_there_are_constants():
    assert {"prefix_break", "missed_form", "greedy", "long_row", "side_call"} <= set(CONSTANTS)


@pytest.mark.parametrize("name", [*CONSTANTS, *get_args(BreakCause), *_REASONS, *MEDIA.values()])
def test_each_finding_and_each_kind_stands_on_the_page(name):
    assert name in NAMED
