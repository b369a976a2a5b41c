"""A program of its own that would change its user."""

import shutil

for place in ("/work", "/tmp", "/dev/shm", "/run/work"):
    path = f"{place}/id"
    if attempt(shutil.copy, "/usr/bin/id", path) and attempt(os.chmod, path, 0o6755) is None:
        capabilities = bytes.fromhex("0000000200000000ffffffff00000000ffffffff")
        attempt(os.setxattr, path, "security.capability", capabilities)
        for command in (path, f"cat /proc/self/status | grep CapEff"):
            output = os.popen(f"{command} 2>&1").read()
            if "euid=" in output or "uid=0" in output:
                escaped(output)
