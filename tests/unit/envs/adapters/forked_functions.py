"""What the warm process of a test imports."""

import os
import time

_calls = [0]


def prepare(request):
    """Return what does as it is asked."""
    number = request["number"]

    def call(value):
        _calls[0] += 1
        match value:
            case "raise":
                raise ValueError("no number")
            case "exit":
                raise SystemExit
            case "end":
                os._exit(0)
            case "crash":
                os.abort()
            case "loop":
                while True:
                    pass
            case "memory":
                return len(bytearray(1 << 40))
            case "sleep":
                time.sleep(100)
            case "no JSON":
                return object()
            case "environment":
                return sorted(os.environ)
            case "calls":
                return _calls[0]
        return number + len(value)

    return call
