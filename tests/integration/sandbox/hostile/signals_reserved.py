"""Signals that wait: the user who started the boxes has one stock of them, for all of them and for itself."""

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
number = 0
while number < 1000 and LIBC.sigqueue(os.getpid(), int(signal.SIGRTMIN), None) == 0:
    number += 1
if number >= 1000:
    escaped("1000 signals of the worker's user are reserved")
