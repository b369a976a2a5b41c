"""Threads without end."""

import threading

n = 0
try:
    while n < 5000:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        n += 1
except RuntimeError:
    print("stopped at", n)
if n >= 1000:
    escaped(f"{n} threads")
os._exit(0)
