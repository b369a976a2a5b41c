"""Watched descriptors: the user who started the boxes has some millions, for all of them and for itself."""

import select

if not FACTS["user"]:  # boxes of root do not have the worker's user, and cgroups count this memory
    sys.exit()


def watch(_, tell):
    attempt(LIBC.prctl, 4, 0, 0, 0, 0)  # not dumpable: hidden from processes of the same user
    events, pipes, total = [select.epoll() for _ in range(110)], [os.pipe() for _ in range(60)], 0
    for one in events:
        for descriptor in (end for pipe in pipes for end in pipe):
            one.register(descriptor, select.EPOLLIN)
            total += 1
        tell(total)


exhaust(watch, 40, 400_000, "watches of the worker's user")
