"""The toy agent as a process of its own: standard library only, so that it starts fast.

As a command it prints its reward; Agent Lightning's controller runs the class, whose reward it sends as an event.
"""

import json
import os
from http.client import HTTPConnection
from urllib.parse import urlsplit

NUM_CALLS = 3


def _post(url: str, body: object, key: str) -> dict:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    connection.request("POST", parts.path, json.dumps(body), headers)
    answer = connection.getresponse()
    reported = json.load(answer)
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{url}: expected 200, found {answer.status}: {reported}")
    return reported


def play(url: str, key: str) -> None:
    """Make the calls, each with the answer to the one before."""
    messages = []
    for turn in range(NUM_CALLS):
        messages.append({"role": "user", "content": f"turn {turn}"})
        answer = _post(f"{url}/chat/completions", {"model": "scripted", "messages": messages}, key)
        messages.append(answer["choices"][0]["message"])


class Toy:
    """The form that Agent Lightning requires."""

    def run(self) -> None:
        """Play, then judge."""
        key = os.environ["AGL_KEY"]
        play(os.environ["AGL_OPENAI_BASE_URL"], key)
        _post(os.environ["AGL_EVENT_URL"], {"event_type": "reward", "data": {"value": 1.0}}, key)


if __name__ == "__main__":
    play(os.environ["OPENAI_BASE_URL"].rstrip("/"), os.environ["OPENAI_API_KEY"])
    print(1.0)
