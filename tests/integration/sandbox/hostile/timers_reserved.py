"""Timers. Each takes a signal from the stock of the user who started the boxes."""

number = 0
while number < 1000 and LIBC.timer_create(1, None, ctypes.byref(ctypes.c_int())) == 0:
    number += 1
if number >= 1000:
    escaped("1000 signals of the worker's user are reserved")
