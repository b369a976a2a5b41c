"""A scorer of another package, whose helper evaluates the answer."""

from envs.adapters.reasoning_gym import _score_text

_PACKAGE = {"__name__": "reasoning_gym.helpers", "oracle": "four"}
exec("def evaluate(text, oracle): return eval(text)", _PACKAGE)  # noqa: S102  # a module of the package
exec("def run(text, oracle): exec(text); return 'four'", _PACKAGE)  # noqa: S102  # another one


class _Dataset:
    def __init__(self, helper):
        self._helper = helper

    def score_answer(self, answer, entry):
        found = _PACKAGE[self._helper](answer, entry["oracle"])
        return float(found in (4, [4], entry["oracle"]))


def prepare(request):
    """Return what scores a text."""
    return lambda text: _score_text(_Dataset(request["helper"]), text, {"oracle": "four"})
