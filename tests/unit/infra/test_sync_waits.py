"""What was answered leaves only after a sync that began later has ended, and while none of the server's has failed."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redis.exceptions import NoPermissionError

from agent_layer.infra.redis import durability
from agent_layer.infra.redis.durability import AGE_SECONDS, DurableWrites
from agent_layer.infra.redis.keys import Keys
from agent_layer.infra.redis.retry import RedisUnreachableError

from ...waiting import scaled


class SlowDisk:
    """A server whose clock passes only while a client sleeps: each second it begins a sync, unless one still runs."""

    def __init__(self, begin, durations, failed=()):
        self.now, self.failed, self.rewritten_at = begin, failed, -1.0
        self.syncs, second = [], 0.0
        for duration in durations:
            self.syncs.append((second, second + duration))
            second = float(int(second + max(duration, 0.001)) + 1)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def info(self, _section):
        is_syncing = any(begin <= self.now < end for begin, end in self.syncs)
        num_ended = sum(end <= self.now for _, end in self.syncs)
        is_failed = num_ended - 1 in self.failed and self.rewritten_at < self.syncs[num_ended - 1][1]
        status = "err" if is_failed else "ok"
        return {"aof_enabled": 1, "aof_pending_bio_fsync": int(is_syncing), "aof_last_write_status": status}

    def bgrewriteaof(self):
        self.rewritten_at = self.now


@pytest.mark.parametrize("begin", [0.0, 0.01, 0.5, 0.99, 1.5, 2.3])
@pytest.mark.parametrize("duration", [0.0, 0.02, 0.4, 0.97, 1.5, 2.7, 6.4])
@pytest.mark.parametrize("failed", [(), (1,)])
def test_a_wait_ends_after_a_later_sync(monkeypatch, begin, duration, failed):
    disk = SlowDisk(begin, [0.01, *[duration] * 40], failed)
    monkeypatch.setattr(durability, "time", disk)

    DurableWrites(Keys("n"))._wait_for_sync(disk)

    ended = [(number, began) for number, (began, end) in enumerate(disk.syncs) if begin <= end <= disk.now]
    lost_at = [disk.syncs[number][1] for number, _ in ended if number in failed]
    assert all(at <= disk.rewritten_at for at in lost_at), "no later sync writes what one did not"
    assert any(began >= max([begin, *lost_at]) for number, began in ended if number not in failed)


def test_threads_wait_side_by_side_for_a_server_that_syncs_by_itself(monkeypatch):
    class Meeting:
        """A server that answers once two clients ask."""

        both = threading.Barrier(2)

        def info(self, _section):
            self.both.wait(scaled(30.0))
            return {"aof_enabled": 0}

    monkeypatch.setattr(durability, "AGE_SECONDS", 0.0)
    waits = DurableWrites(Keys("n"))
    waits._kind = "age"
    with ThreadPoolExecutor(2) as pool:
        for wait in [pool.submit(waits.wait, Meeting()) for _ in range(2)]:
            wait.result()


def test_a_disk_that_never_syncs_is_named(monkeypatch):
    disk = SlowDisk(0.5, [1e6])
    monkeypatch.setattr(durability, "time", disk)

    with pytest.raises(RedisUnreachableError, match="its syncs take longer"):
        DurableWrites(Keys("n"), seconds=30.0)._wait_for_sync(disk)


def test_a_server_that_does_not_tell_gets_time(monkeypatch):
    disk = SlowDisk(0.5, [])
    monkeypatch.setattr(durability, "time", disk)

    def refuse(_section):
        raise NoPermissionError

    disk.info = refuse
    DurableWrites(Keys("n"))._wait_for_sync(disk)

    assert disk.now == 0.5 + AGE_SECONDS


class FailedDisk:
    """A server whose syncs of its first writes fail."""

    def __init__(self, directory, num_failures):
        self.options = {"dir": str(directory), "appendfilename": "appendonly.aof"}
        self.file, self.num_left = directory / "appendonly.aof", num_failures
        self.file.touch()
        self.has_failed, self.num_rewrites = False, 0

    def set(self, _name, mark):
        with self.file.open("a") as file:
            file.write(mark)
        self.has_failed = self.num_left > 0
        self.num_left -= 1

    def bgrewriteaof(self):
        self.has_failed, self.num_rewrites = False, self.num_rewrites + 1
        self.file.rename(self.file.with_suffix(f".{self.num_rewrites}"))  # its inode is not used again
        self.file.touch()

    def info(self, _section):
        return {"aof_last_write_status": "err" if self.has_failed else "ok", "aof_buffer_length": 0}


@pytest.mark.parametrize("num_failures", [0, 1, 3])
def test_our_sync_counts_only_in_a_file_that_the_server_has_not_failed_to_sync(tmp_path, num_failures):
    disk, waits = FailedDisk(tmp_path, num_failures), DurableWrites(Keys("n"))
    waits._options = disk.options

    assert waits._sync_file(disk)
    assert (disk.num_rewrites, disk.has_failed) == (num_failures, False)


def test_a_failure_between_two_waits_is_known_though_the_server_has_forgotten_it(tmp_path, monkeypatch):
    """The kernel reports a lost write to each descriptor that was open then, to no later one."""
    disk, waits, sync = FailedDisk(tmp_path, 0), DurableWrites(Keys("n")), os.fsync
    waits._options = disk.options
    assert waits._sync_file(disk)
    lost = list_descriptors(disk.file)

    def lose(file):
        if file in lost:
            lost.remove(file)
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    monkeypatch.setattr(durability.os, "fsync", lose)

    assert waits._sync_file(disk)
    assert disk.num_rewrites == 1
    for _ in range(20):
        assert waits._sync_file(disk)
    assert disk.num_rewrites == 1
    assert len(list_descriptors(disk.file)) == 1


def list_descriptors(file):
    """Return the descriptors of this process that have the file open."""
    return {int(one.name) for one in Path("/proc/self/fd").iterdir() if one.exists() and one.samefile(file)}


@pytest.mark.parametrize("num_failures", [1, 3])
def test_a_file_whose_lost_bytes_the_kernel_reports_to_us_is_written_again(tmp_path, monkeypatch, num_failures):
    disk, waits, sync, left = FailedDisk(tmp_path, 0), DurableWrites(Keys("n")), os.fsync, [None] * num_failures
    waits._options = disk.options

    def lose(file):
        if left:
            left.pop()
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    monkeypatch.setattr(durability.os, "fsync", lose)

    assert waits._sync_file(disk)
    assert disk.num_rewrites == num_failures


@pytest.mark.parametrize("is_reported_to_us", [False, True])
def test_a_file_that_no_rewrite_mends_is_named(tmp_path, monkeypatch, is_reported_to_us):
    def lose(_):
        raise OSError(errno.EIO, "Input/output error")

    disk, waits = FailedDisk(tmp_path, 0 if is_reported_to_us else 10**9), DurableWrites(Keys("n"), seconds=0.05)
    waits._options = disk.options
    if is_reported_to_us:
        monkeypatch.setattr(durability.os, "fsync", lose)

    with pytest.raises(RedisUnreachableError, match=r"is not synced .*; look after its disk"):
        waits._sync_file(disk)


def test_a_file_that_lost_bytes_is_not_trusted_by_who_may_not_begin_it_again(tmp_path, monkeypatch):
    def refuse():
        raise NoPermissionError("NOPERM this user has no permissions to run the 'bgrewriteaof' command")

    disk, waits, failures = FailedDisk(tmp_path, 0), DurableWrites(Keys("n")), iter([OSError(errno.EIO, "lost")])

    def lose(_):
        if error := next(failures, None):
            raise error

    waits._options = disk.options
    monkeypatch.setattr(disk, "bgrewriteaof", refuse)
    monkeypatch.setattr(durability.os, "fsync", lose)

    with pytest.raises(RedisUnreachableError, match="look after its disk"):
        waits._sync_file(disk)
