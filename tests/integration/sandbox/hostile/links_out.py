"""Links to files of the host."""

os.symlink("/etc/shadow", "/tmp/a")
os.symlink(FACTS["canary"], "/tmp/b")
os.symlink("../../../../../../../../" + FACTS["canary"], "/tmp/c")
os.symlink("/proc/1/root" + FACTS["canary"], "/tmp/d")
for path in ("/tmp/a", "/tmp/b", "/tmp/c", "/tmp/d"):
    if attempt(open, path):
        escaped(path)
