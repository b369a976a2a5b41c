"""Cgroups of both versions, over a copy of the files that the kernel shows."""

from pathlib import Path

import pytest

from envs.sandbox import Resources
from envs.sandbox.host_side.cgroups import CgroupTree, make_cgroup_tree

RESOURCES = Resources(memory_mb=64, processes=10, cpus=0.5)


def show(root, own, mounts):
    """Write what a process sees of its cgroups."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in own))
    lines = [
        f"{number} 1 0:{number} {within} {mounted} rw - {kind} {kind} {options}"
        for number, (within, mounted, kind, options) in enumerate(mounts)
    ]
    (root / "proc/self/mountinfo").write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n" + "".join(f"{line}\n" for line in lines)
    )
    for _, mounted, _, _ in mounts:
        (root / mounted.lstrip("/")).mkdir(parents=True)


@pytest.fixture
def version_2(tmp_path):
    show(tmp_path, ["0::/user/worker"], [("/", "/sys/fs/cgroup", "cgroup2", "rw,nsdelegate")])
    place = tmp_path / "sys/fs/cgroup/user/worker"
    place.mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu memory pids io")
    (place / "cgroup.subtree_control").write_text("memory")
    return tmp_path, place


def test_version_2_is_used_below_the_workers_own_cgroup(version_2, monkeypatch):
    root, place = version_2
    _let_files_appear(monkeypatch, "memory.max", "cgroup.subtree_control")

    tree = make_cgroup_tree(root)

    assert isinstance(tree, CgroupTree)
    assert tree.version == 2
    (folder,) = tree.directories
    assert (folder / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert folder.parent == place
    assert (place / "cgroup.subtree_control").read_text() == "+pids +cpu"
    cgroup = tree.add_cgroup("box", RESOURCES)
    assert (folder / "box/memory.max").read_text() == str(64 << 20)
    assert (folder / "box/pids.max").read_text() == "13"
    assert (folder / "box/cpu.max").read_text() == "50000 100000"
    cgroup.add_process(7)
    assert (folder / "box/cgroup.procs").read_text() == "7"
    (folder / "box/memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    (folder / "box/cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (folder / "box/memory.peak").write_text(f"{32 << 20}\n")
    usage = cgroup.usage()
    assert (usage.oom_kills, usage.cpu_seconds, usage.peak_memory_mb) == (1, 1.5, 32.0)
    cgroup.forget_peak()
    assert not (folder / "box/memory.max_usage_in_bytes").exists()


def test_version_1_has_a_folder_for_each_controller(tmp_path):
    kinds = ("memory", "pids", "cpu,cpuacct")
    mounts = [("/docker/a", f"/sys/fs/cgroup/{kind}", "cgroup", f"rw,{kind}") for kind in kinds]
    show(tmp_path, ["3:memory:/docker/a/b", "2:pids:/docker/a", "1:cpu,cpuacct:/docker/a", "0::/"], mounts)
    (tmp_path / "sys/fs/cgroup/memory/b").mkdir()

    tree = make_cgroup_tree(tmp_path)

    assert isinstance(tree, CgroupTree)
    assert tree.version == 1
    assert sorted(folder.parent.name for folder in tree.directories) == ["b", "cpu,cpuacct", "pids"]
    cgroup = tree.add_cgroup("box", RESOURCES)
    found = {file.name: file.read_text() for directory in cgroup.directories for file in directory.iterdir()}
    assert found["memory.limit_in_bytes"] == found["memory.memsw.limit_in_bytes"] == str(64 << 20)
    assert (found["pids.max"], found["cpu.cfs_quota_us"]) == ("13", "50000")
    assert found["memory.kmem.tcp.limit_in_bytes"] == str(8 << 20)  # beside the rest, which does not count it
    cgroup.forget_peak()
    assert (tmp_path / "sys/fs/cgroup/memory/b").joinpath(
        tree_name(tree), "box/memory.max_usage_in_bytes"
    ).read_text() == "0"


def tree_name(tree):
    return next(iter(tree.directories)).name


@pytest.mark.parametrize(
    ("own", "mounts", "words"),
    [
        (["0::/"], [], "no cgroup controller memory or pids is mounted"),
        (["0::/"], [("/", "/sys/fs/cgroup", "cgroup2", "rw")], "no cgroup controller memory or pids"),
        (["4:memory:/x", "0::/"], [("/", "/m", "cgroup", "rw,memory")], "no cgroup controller pids is mounted"),
        (["4:memory,pids:/x", "0::/"], [("/", "/m", "cgroup", "rw,memory,pids")], "No such file or directory"),
    ],
)
def test_without_usable_cgroups_the_reason_is_named(tmp_path, own, mounts, words):
    show(tmp_path, own, mounts)

    assert words in make_cgroup_tree(tmp_path)


def _let_files_appear(monkeypatch, *names):
    """Have new folders contain files, as those of the kernel do."""
    make = Path.mkdir

    def make_with_file(self, *arguments, **options):
        make(self, *arguments, **options)
        for name in names:
            (self / name).touch()

    monkeypatch.setattr(Path, "mkdir", make_with_file)
