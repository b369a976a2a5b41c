"""One model call, from the request to the recorded answer."""
