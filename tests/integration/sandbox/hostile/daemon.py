"""A daemon that outlives its parent."""

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 100)
        time.sleep(301)
    os._exit(0)
print("left a daemon")
