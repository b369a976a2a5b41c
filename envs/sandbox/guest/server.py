"""Server of a box: starts a child for each request, reports how it ended, and kills what it left behind.

The worker sends requests as packets, with the descriptors of the child's stdin, stdout and stderr:

    {"id": 1, "job": "exec", "argv": […], "cwd": …, "env": {…}, "cpu_seconds": 30}     see jobs.py for the other jobs
    {"kill": 1}                  end the child of request 1, and its process group
    {"ping": true}               answered with {"pong": true}

and gets one answer for each job, when its child has ended: ``{"id": 1, "status": …, "oom": false, "cpu_seconds": …,
"peak_memory_kb": …}``, where ``status`` is what ``waitpid`` reports. When the last running child has ended, all other
processes of the box are killed before the answer leaves, so that nothing writes into its pipes any more.

A spare child waits for the first command, which most boxes run alone: it then costs no fork. Later commands get no
spare, because an earlier one could have changed it.
"""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple, cast

from envs.sandbox.guest.counts import count_watches, resident_bytes
from envs.sandbox.guest.jobs import Rules, become_user, run_job
from envs.sandbox.guest.packets import MAX_PACKET_LENGTH, Packet, receive_packet, send_packet
from envs.sandbox.guest.warm_python import rehearse

_DEFAULT = (signal.SIGCHLD, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""Signals that a shell may have had this process's ancestors ignore."""
_WATCH_SECONDS = 0.1
_CLOCK_SECONDS = 0.02
"""Clocks of files lag behind by a tick."""
_KILLED_FIRST = b"1000"
"""Score with which the kernel kills a process for memory before any other."""
_MAX_REAP_SECONDS = 2.0


class _Job(NamedTuple):
    number: int
    killed_for_memory: list[int]
    """Not empty: the watch killed it."""


class Beginning:
    """When a box began, by the clock of files: the earliest of what it was at each look, for it may be set back.

    Args:
        clock: of files, in seconds.
        steady: one that is never set.
    """

    def __init__(self, clock: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._steady = clock, steady
        self._began = steady()
        self._earliest = clock() - _CLOCK_SECONDS

    def read(self) -> float:
        """Look again; return the time at and after which every file was changed in the box, and hardly any other."""
        then = self._clock() - (self._steady() - self._began) - _CLOCK_SECONDS
        self._earliest = min(self._earliest, then)
        return self._earliest


class Server:
    """Serves one box until the worker closes the connection.

    Args:
        end: connection to the worker.
        rules: for its children.
        oom_score: from ``open_oom_score``.
    """

    def __init__(self, end: socket.socket, rules: Rules, oom_score: int) -> None:
        self._end = end
        self._rules = rules
        self._beginning = Beginning()
        self._jobs: dict[int, _Job] = {}
        """By process id."""
        self._is_clean = True
        """No command has run, so that none has left anything."""
        self._spare: int | None = None
        self._spare_end: socket.socket | None = None
        self._base_bytes = resident_bytes(os.getpid())
        self._oom_score = oom_score
        self._own_score = os.read(oom_score, 8)
        self._exits, self._exits_writer = os.pipe()
        os.set_blocking(self._exits, False)
        os.set_blocking(self._exits_writer, False)

    def serve(self, missing: list[str]) -> None:
        """Report that the box is up, and serve until the connection closes; the children end with the caller.

        Args:
            missing: what the kernel has no means for.
        """
        signal.signal(signal.SIGCHLD, _ring)
        signal.set_wakeup_fd(self._exits_writer, warn_on_full_buffer=False)
        self._fork_spare()
        send_packet(self._end, {"ready": missing})
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        poll.register(self._exits, select.POLLIN)
        while True:
            is_watching = self._jobs and (self._rules.watched_bytes, self._rules.max_watches) != (None, None)
            ready = {descriptor for descriptor, _ in poll.poll(_WATCH_SECONDS * 1000 if is_watching else None)}
            if self._exits in ready:
                self._reap()
            if is_watching:
                self._watch()
            if self._end.fileno() in ready:
                packet = receive_packet(self._end)
                if packet is None:
                    return
                self._obey(packet)

    def _obey(self, packet: Packet) -> None:
        fields = packet.fields
        if "ping" in fields:
            send_packet(self._end, {"pong": True})
        elif "kill" in fields:
            for pid, job in self._jobs.items():
                if job.number == fields["kill"]:
                    _kill_group(pid)
        else:
            self._start(fields, packet.descriptors)
        for descriptor in packet.descriptors:
            os.close(descriptor)

    def _start(self, fields: dict[str, object], descriptors: list[int]) -> None:
        number = cast("int", fields["id"])
        is_command = fields["job"] == "exec"
        fields["began"] = self._beginning.read()
        try:
            pid = self._use_spare(fields, descriptors) if is_command else None
            pid = pid or self._fork(lambda: _run(fields, descriptors, self._rules))
        except OSError as error:
            send_packet(self._end, {"id": number, "error": error.errno})
            return
        self._is_clean = self._is_clean and not is_command
        self._jobs[pid] = _Job(number, [])

    def _fork(self, run: Callable[[], int]) -> int:
        """Fork a child that runs a function as the box's user, and exits with what it returns; return its id."""
        os.write(
            self._oom_score, _KILLED_FIRST
        )  # a child inherits it, and so dies before this server, which reports it
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid != 0:
                os.write(self._oom_score, self._own_score)
        if pid:
            return pid
        code = 125
        try:
            signal.set_wakeup_fd(-1)
            for number in _DEFAULT:
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            self._end.close()
            become_user(self._rules)
            code = run()
        except BaseException as error:  # noqa: BLE001  # the end of a forked process, whatever it was
            with suppress(Exception):
                sys.stderr.write(f"sandbox: {error}\n")
        finally:
            with suppress(Exception):
                sys.stderr.flush()
            os._exit(code)

    def _fork_spare(self) -> None:
        """Fork the child that waits for the first command."""
        self._spare_end, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        ours = self._spare_end

        def wait() -> int:
            ours.close()
            rehearse()
            packet = receive_packet(theirs)
            return _run(packet.fields, packet.descriptors, self._rules) if packet else 0

        self._spare = self._fork(wait)
        theirs.close()

    def _use_spare(self, fields: dict[str, object], descriptors: list[int]) -> int | None:
        """Hand a command to the spare child; None: there is none, or the command is too large for it."""
        pid, end, self._spare, self._spare_end = self._spare, self._spare_end, None, None
        if pid is None or end is None:
            return None
        with end:
            try:
                send_packet(end, fields, descriptors, max_inline=MAX_PACKET_LENGTH)
            except OSError:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)  # or the command could look into it, as into any process of its user
                return None
        return pid

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._exits, 4096)
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._spare:
                    self._spare = None
                if (job := self._jobs.pop(pid, None)) is None:
                    continue
                cpu_seconds = usage.ru_utime + usage.ru_stime
                if not self._jobs and not self._is_clean:
                    cpu_seconds += self._kill_leftovers()
                answer = {"id": job.number, "status": status, "oom": bool(job.killed_for_memory)}
                send_packet(self._end, {**answer, "cpu_seconds": cpu_seconds, "peak_memory_kb": usage.ru_maxrss})

    def _kill_leftovers(self) -> float:
        """Kill what no request waits for; return the CPU seconds that it had used."""
        used, deadline = 0.0, time.monotonic() + _MAX_REAP_SECONDS
        while time.monotonic() < deadline:
            self._rules.kill_others()
            try:
                pid, _, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return used
            if pid == 0:
                time.sleep(0.001)
                continue
            used += usage.ru_utime + usage.ru_stime
        return used

    def _watch(self) -> None:  # kept: serve names what it does
        """Kill all children when their processes together pass a limit that nothing else counts."""
        rules, num_watches = self._rules, 0
        used = 0 if rules.sockets is None else rules.sockets.count_bytes()
        for pid in rules.list_processes():
            used += max(0, resident_bytes(pid) - self._base_bytes)
            if rules.max_watches is not None and num_watches <= rules.max_watches:
                num_watches += count_watches(pid, rules.max_watches)
        is_full = rules.watched_bytes is not None and used > rules.watched_bytes
        if is_full or (rules.max_watches is not None and num_watches > rules.max_watches):
            for pid, job in self._jobs.items():
                job.killed_for_memory.append(used)
                _kill_group(pid)
            self._rules.kill_others()


def _run(fields: dict[str, object], descriptors: list[int], rules: Rules) -> int:
    """Run a job on its own descriptors, and no other."""
    for number in (0, 1, 2):
        os.dup2(descriptors[number], number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    return run_job(fields, rules)


def _ring(_signal: int, _frame: object) -> None:
    """Do nothing: Python writes the signal into the wakeup pipe."""


def _kill_group(pid: int) -> None:
    """Kill a child and its process group, which it may not have made yet."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def open_oom_score() -> int:
    """Return a descriptor of this process's score, by which the kernel chooses what to kill for memory.

    Open it before the box is locked down: from then on no process of the box can open its own.
    """
    return os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)


def kill_others() -> None:
    """Kill every other process of a box whose first process this one is."""
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def list_processes() -> Iterator[int]:
    """Yield every other process of a box whose first process this one is."""
    own = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own:
            yield int(name)
