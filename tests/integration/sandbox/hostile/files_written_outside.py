"""Writing wherever a program could be found by others."""

places = ("/", "/usr", "/usr/bin", "/usr/local/lib", "/etc", "/dev", "/proc", "/bin", "/lib", "/proc/sys/kernel")
for place in places:
    try:
        with open(f"{place}/planted", "w") as file:
            file.write("x")
        escaped(place)
    except OSError as error:
        print(place, error)
