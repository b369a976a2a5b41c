"""What the warm process of a test imports."""

import os
import time

_calls = [0]


def _raise(error):
    raise error


def _loop():
    while True:
        pass


_ACTS = {
    "raise": lambda: _raise(ValueError("no number")),
    "exit": lambda: _raise(SystemExit),
    "end": lambda: os._exit(0),
    "crash": os.abort,
    "loop": _loop,
    "memory": lambda: len(bytearray(1 << 40)),
    "sleep": lambda: time.sleep(100),
    "no JSON": object,
    "environment": lambda: sorted(os.environ),
    "calls": lambda: _calls[0],
}


def prepare(request):
    """Return what does as it is asked, or adds the length of a text to a number."""
    number = request["number"]

    def call(value):
        _calls[0] += 1
        return _ACTS[value]() if value in _ACTS else number + len(value)

    return call
