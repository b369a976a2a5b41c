"""Another root directory, and out of it again."""

os.makedirs("/tmp/c", exist_ok=True)
try:
    os.chroot("/tmp/c")
    escaped("chroot")
except OSError as error:
    print(error)
if syscall("pivot_root", b"/tmp", b"/tmp/c")[0] >= 0:
    escaped("pivot_root")
for _ in range(64):
    os.chdir("..")
if os.path.exists("./root") or os.path.exists("." + FACTS["canary"]):
    escaped("the root directory of the host")
