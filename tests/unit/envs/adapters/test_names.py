"""Names of adapters: options are read, and a package that is absent is named with its extra."""

import sys

import pytest

from agent_layer.errors import BadInputError
from envs.adapters.extras import read_options
from envs.registry import find_object
from envs.tasksets import open_taskset


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("chain_sum", "chain_sum", {}),
        ("chain_sum?max_terms=4", "chain_sum", {"max_terms": 4}),
        ('a?operators=["%2B","-"]&half=0.5', "a", {"operators": ["+", "-"], "half": 0.5}),
        ("Lake-v1?map_name=8x8&is_slippery=false", "Lake-v1", {"map_name": "8x8", "is_slippery": False}),
        ("space/Lake-v1?none=null&empty=", "space/Lake-v1", {"none": None, "empty": ""}),
    ],
)
def test_options_are_json_or_text(text, name, options):
    assert read_options(text) == (name, options)


def test_an_option_without_a_value_is_refused():
    with pytest.raises(BadInputError, match="option=value"):
        read_options("chain_sum?max_terms")


@pytest.mark.parametrize(
    ("find", "name", "package"),
    [
        (open_taskset, "reasoning-gym:chain_sum", "reasoning_gym"),
        (lambda name: find_object(name, "agent"), "gymnasium:Taxi-v4", "gymnasium"),
    ],
)
def test_a_package_that_is_absent_is_named_with_its_extra(monkeypatch, find, name, package):
    for module in [one for one in sys.modules if one.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(BadInputError, match=rf"pip install .*\[{name.partition(':')[0]}\]"):
        find(name)
