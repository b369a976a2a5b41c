"""Signals that the kernel sends when a descriptor is ready: to the first process, the victim and the worker."""

import fcntl

F_SETSIG = 10
for target in (1, FACTS["victim"], FACTS["worker"], -FACTS["victim"]):
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT):
        left, right = socket.socketpair()
        attempt(fcntl.fcntl, left, F_SETSIG, number)
        attempt(fcntl.fcntl, left, fcntl.F_SETOWN, target)
        attempt(fcntl.fcntl, left, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        attempt(right.send, b"x")
server = socket.create_server(("127.0.0.1", 0))
for target in (1, FACTS["victim"], FACTS["worker"]):
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    attempt(fcntl.fcntl, accepted, fcntl.F_SETOWN, target)
    attempt(client.send, b"!", socket.MSG_OOB)
time.sleep(0.2)
