"""Watched descriptors: the user who started the boxes has some millions, for all of them and for itself."""

import mmap
import select

if not FACTS["user"]:  # boxes of root do not have the worker's user, and cgroups count this memory
    sys.exit()
NUM_PROCESSES = 40
totals = mmap.mmap(-1, 8 * NUM_PROCESSES)


def watch(number):
    attempt(LIBC.prctl, 4, 0, 0, 0, 0)  # not dumpable: hidden from processes of the same user
    events, pipes, total = [select.epoll() for _ in range(110)], [os.pipe() for _ in range(60)], 0
    for one in events:
        for descriptor in (end for pipe in pipes for end in pipe):
            one.register(descriptor, select.EPOLLIN)
            total += 1
        totals[8 * number : 8 * number + 8] = total.to_bytes(8, "little")


children = []
for number in range(NUM_PROCESSES):
    if (child := os.fork()) == 0:
        try:
            watch(number)
        except OSError as error:
            print(number, "stopped", error, flush=True)
        finally:
            time.sleep(30)
            os._exit(0)
    children.append(child)
total, grown_at = 0, time.monotonic()
while time.monotonic() < grown_at + (0.3 if total else 5):
    before = total
    total = sum(int.from_bytes(totals[8 * one : 8 * one + 8], "little") for one in range(NUM_PROCESSES))
    if total > 400_000:
        escaped(f"{total} watches of the worker's user")
        break
    grown_at = time.monotonic() if total > before else grown_at
    time.sleep(0.02)
print("held", total)
for child in children:
    os.kill(child, signal.SIGKILL)
