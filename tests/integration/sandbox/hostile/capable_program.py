"""A program with capabilities in its attributes, or of another user."""

import shutil
import struct
import subprocess

shutil.copy("/usr/bin/id", "tool")
attempt(os.setxattr, "tool", "security.capability", struct.pack("<5I", 0x2000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0))
attempt(os.chown, "tool", 0, 0)
attempt(os.chmod, "tool", 0o6755)
found = attempt(lambda: subprocess.run(["./tool", "-u"], stdout=subprocess.PIPE, check=False).stdout)
if found is not None and found.strip() == b"0":
    escaped("root by a program")
