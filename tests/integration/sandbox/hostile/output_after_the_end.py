"""A daemon that goes on writing into the output of its dead parent."""

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            os.write(1, b".")
            time.sleep(0.001)
    os._exit(0)
print("left")
