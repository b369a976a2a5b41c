"""A loop that ignores every signal that can be ignored."""

for number in range(1, 65):
    attempt(signal.signal, number, signal.SIG_IGN)
while True:
    pass
