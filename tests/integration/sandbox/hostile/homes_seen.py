"""Homes, logs and configuration of the host."""

for path in ("/root", "/home", "/var", "/opt", "/srv", "/mnt", "/media", "/sys", "/boot", "/lost+found"):
    if os.path.exists(path):
        escaped(path)
