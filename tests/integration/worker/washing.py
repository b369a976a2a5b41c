"""Ways in which a policy may try to turn its zero into null: programs that it has run in its box.

Each runs as ``python3 -c`` in a small box. None leaves the answer that its task asks for, so each earns 0.
"""

_LOWER_SCORE = """
try:
    with open("/proc/self/oom_score_adj", "r+b", buffering=0) as score: score.write(b"0")
except OSError: pass
"""
_FORK = "import os, time\nfor _ in range(24):\n    if os.fork() == 0: break\n"
_KERNEL = {
    "pipes": """
import os, fcntl
held = []
try:
    while True:
        r, w = os.pipe(); held.append(r); os.set_blocking(w, False)
        try:
            fcntl.fcntl(w, 1031, 1 << 20)
        except OSError: pass
        try:
            while True: os.write(w, bytes(65536))
        except BlockingIOError: pass
except OSError: pass
""",
    "unix_sockets": """
import socket
held = []
try:
    while True:
        pair = socket.socketpair(); held.append(pair); pair[0].setblocking(False)
        try:
            while True: pair[0].send(bytes(65536))
        except BlockingIOError: pass
except OSError: pass
""",
    "tcp_sockets": """
import socket
held, server = [], socket.create_server(("127.0.0.1", 0))
try:
    while True:
        one = socket.create_connection(server.getsockname()); held += [one, server.accept()]; one.setblocking(False)
        try:
            while True: one.send(bytes(65536))
        except BlockingIOError: pass
except OSError: pass
""",
    "descriptors_in_flight": """
import socket
held = []
try:
    while True:
        pair = socket.socketpair(); held.append(pair)
        socket.send_fds(pair[0], [b"x"], [one.fileno() for two in held[-3:] for one in two])
except OSError: pass
""",
    "epolls": """
import select, os
held, (r, w) = [], os.pipe()
try:
    while True:
        one = select.epoll(); one.register(r); held.append(one)
except OSError: pass
""",
}
_HOLD = "import time\ntime.sleep(60)\n"

WAYS = {
    # memory
    "memory": "x = [bytearray(1 << 20) for _ in range(4000)]",
    "memory_at_once": "x = bytearray(4 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1",
    "memory_of_children": _FORK + "x = [bytearray(1 << 20) for _ in range(400)]",
    "memory_steered": _LOWER_SCORE + _FORK + "x = [bytearray(1 << 20) for _ in range(400)]\n" + _HOLD,
    "memory_shared": "import mmap\nx = mmap.mmap(-1, 1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1",
    "memory_in_files": "open('/dev/shm/x', 'wb').write(bytes(15 << 20))\nx = [bytearray(1 << 20) for _ in range(400)]",
    # kernel memory: of processes that look small
    **{f"kernel_{name}": _FORK + code + _HOLD for name, code in _KERNEL.items()},
    **{f"kernel_{name}_steered": _LOWER_SCORE + _FORK + code + _HOLD for name, code in _KERNEL.items()},
    # processes
    "fork_bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "thread_bomb": """
import threading, time
while True:
    try: threading.Thread(target=time.sleep, args=(60,)).start()
    except RuntimeError: pass
""",
    "children_left": """
import os, time
for _ in range(20):
    if os.fork() == 0:
        os.setsid(); time.sleep(60); os._exit(0)
""",
    # files
    "files": "i = 0\nwhile True:\n    open(f'f{i}', 'w').close(); i += 1",
    "folders_deep": "import os\nwhile True:\n    os.mkdir('x' * 200); os.chdir('x' * 200)",
    "workdir_closed": "import os\nos.chmod('.', 0)",
    "answer_is_a_folder_of_many": """
import os
os.mkdir('answer')
for i in range(400): open(f'answer/{i}', 'w').close()
""",
    "answer_is_a_pipe": "import os\nos.mkfifo('answer')",
    "answer_is_long": "f = open('answer', 'wb')\nfor _ in range(12): f.write(bytes(1 << 20))",
    # disk
    "disk": "f = open('x', 'wb')\nwhile True: f.write(bytes(1 << 20))",
    "disk_of_tmp": "f = open('/tmp/x', 'wb')\nwhile True: f.write(bytes(1 << 20))",
    "disk_sparse": "f = open('answer', 'wb')\nf.truncate(14 << 20)",
    # output
    "output": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
    "output_of_errors": "import sys\nwhile True: sys.stderr.write('x' * 65536)",
    "output_of_bytes": "import sys\nsys.stdout.buffer.write(bytes(range(256)) * 2000)",
    # clock
    "sleep": "import time\ntime.sleep(600)",
    "spin": "while True: pass",
    "spin_everywhere": _FORK + "while True: pass",
    # signals
    "kill_all": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "kill_server": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "stop_server": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)",
    "signal_server": "import os\nfor n in range(1, 32):\n    try: os.kill(os.getppid(), n)\n    except OSError: pass",
    "stop_itself": "import os, signal\nos.kill(0, signal.SIGSTOP)",
    "ignore_signals": """
import signal, time
for n in range(1, 32):
    try: signal.signal(n, signal.SIG_IGN)
    except OSError: pass
time.sleep(600)
""",
    # hanging closes, lost connections
    "output_kept_open": "import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(60)",
    "everything_closed": "import os, time\nos.closerange(0, 4096)\ntime.sleep(600)",
    "descriptors_written": """
import os
for n in range(3, 256):
    try: os.write(n, b'{"id": 1, "status": 0}')
    except OSError: pass
""",
    # memory that outlives its processes
    "memory_shared_left": """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(60):
    address = libc.shmat(libc.shmget(0, 1 << 20, 0o1600), None, 0)
    if address in (None, 2**64 - 1): break
    ctypes.memset(address, 1, 1 << 20)
""",
    "memory_in_nameless_files": """
import os, socket
pair = socket.socketpair()
for _ in range(60):
    one = os.memfd_create("x"); os.write(one, bytes(1 << 20)); socket.send_fds(pair[0], [b"x"], [one]); os.close(one)
""",
    # what the agent and its scorer write and read
    "note_is_a_folder": "import os\nos.mkdir('note')",
    "note_is_a_loop": "import os\nos.symlink('note', 'note')",
    "note_leads_nowhere": "import os\nos.symlink('/none/x', 'note')",
    "note_leads_to_programs": "import os\nos.symlink('/usr/bin/env', 'note')",
    "note_cannot_be_written": "import os\nos.close(os.open('note', os.O_CREAT, 0))",
    "answer_is_a_loop": "import os\nos.symlink('answer', 'answer')",
    "answer_cannot_be_read": "import os\nos.mkdir('answer', 0)",
    "answer_leads_to_memory": "import os\nos.symlink('/proc/self/mem', 'answer')",
    "answer_has_odd_names": """
import os
os.mkdir("answer"); os.chdir(b"answer")
for name in (b"\\xff\\n", b"-", b"*", b" "): os.close(os.open(name, os.O_CREAT))
os.mkfifo("pipe"); os.link("-", "twice"); os.symlink("..", "up")
""",
    "workdir_removed": """
import os, shutil
here = os.getcwd()
shutil.rmtree(here, ignore_errors=True)
try: os.rename(here, here + "-moved")
except OSError: pass
""",
    # what keeps others waiting
    "stop_all": """
import os, signal, time
end = time.time() + 60
while time.time() < end:
    try: os.kill(-1, signal.SIGSTOP)
    except OSError: pass
""",
    "limits_lowered": """
import resource, os
for n in range(16):
    for pid in (0, os.getppid()):
        try: resource.prlimit(pid, n, (0, 0))
        except (OSError, ValueError): pass
""",
    "watches": """
import ctypes
libc = ctypes.CDLL(None)
while (one := libc.inotify_init()) >= 0 and libc.inotify_add_watch(one, b".", 0xfff) >= 0: pass
""",
    "clock_set": """
import time
for clock in (0, 1):
    try: time.clock_settime(clock, 1e10)
    except OSError: pass
""",
    "core_dumped": "import os\nos.abort()",
    "given_removed": "import os\nfor one in os.listdir(): os.remove(one)",
}
SAFE_ON_HOSTS = frozenset(
    {
        *("memory", "memory_of_children", "children_left", "answer_is_a_pipe", "answer_is_long", "output", "spin"),
        *("output_of_errors", "sleep", "kill_server", "stop_server", "ignore_signals", "output_kept_open"),
        *("everything_closed", "core_dumped", "note_is_a_folder", "note_is_a_loop", "note_leads_nowhere"),
        *("given_removed", "note_cannot_be_written", "answer_is_a_loop", "workdir_removed", "memory_in_nameless_files"),
    }
)
"""Ways that harm no machine where nothing is between them and it: kind process. The others must never run there."""
QUICK = (
    *("memory", "kernel_pipes_steered", "fork_bomb", "files", "disk", "output", "sleep", "kill_server"),
    *("output_kept_open", "answer_is_long", "given_removed"),
)
"""Ways that ``make test`` tries, one of each sort; ``make test-all`` tries all."""
