"""Specs: equal ones have equal hashes, and none that no box can have."""

import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema.sandbox import check_spec
from envs.sandbox import Resources, SandboxSpec
from envs.sandbox.spec import box_variables


def test_equal_specs_have_equal_hashes():
    assert SandboxSpec().hash() == SandboxSpec(resources=Resources(), env={}, workdir="/work").hash()
    assert SandboxSpec(env={"A": "1", "B": "2"}).hash() == SandboxSpec(env={"B": "2", "A": "1"}).hash()


def test_a_default_is_no_part_of_the_hash():
    """A field that is added later, with a default, keeps the hashes of stored trajectories."""
    assert SandboxSpec().hash() == "18f0250678c9ba6e1c6608eeba2784ef"


@pytest.mark.parametrize(
    "other",
    [SandboxSpec(kind="process"), SandboxSpec(env={"A": ""}), SandboxSpec(resources=Resources(cpus=0.5))],
)
def test_different_specs_have_different_hashes(other):
    assert other.hash() != SandboxSpec().hash()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (SandboxSpec(resources=Resources(memory_mb=0)), "positive memory_mb, found 0"),
        (SandboxSpec(resources=Resources(cpus=float("nan"))), "positive cpus"),
        (SandboxSpec(workdir="/"), "found '/'"),
        (SandboxSpec(workdir="/a/../b"), "absolute path"),
        (SandboxSpec(env={"A=": "b"}), "names without '='"),
        (SandboxSpec(env={"A": "\0"}), "without NUL"),
    ],
)
def test_what_no_box_can_have_is_refused(spec, words):
    with pytest.raises(BadInputError, match=words):
        check_spec(spec)


def test_variables_of_the_spec_come_last():
    variables = box_variables(SandboxSpec(env={"LANG": "C", "X": "1"}), home="/work", tmp="/tmp")

    assert (variables["LANG"], variables["X"], variables["HOME"]) == ("C", "1", "/work")
