"""Messages that pretend to come from another process or user."""

import struct

left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
right.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
for pid, user in ((1, 0), (FACTS["worker"], 0), (os.getpid(), 0), (1, os.getuid())):
    credentials = struct.pack("3i", pid, user, user)
    if attempt(left.sendmsg, [b"x"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, credentials)]) is not None:
        escaped(f"credentials of {pid} {user}")
