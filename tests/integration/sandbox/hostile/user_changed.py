"""Another user or group."""

for change in (os.setuid, os.setgid, os.seteuid, os.setegid):
    for number in (0, 1, 65534):
        if number != os.getuid():
            try:
                change(number)
                escaped(f"user {os.getresuid()} {os.getresgid()}")
            except OSError as error:
                print(error)
attempt(os.setgroups, [0, 6, 27])
if os.getgroups():
    escaped(f"groups {os.getgroups()}")
