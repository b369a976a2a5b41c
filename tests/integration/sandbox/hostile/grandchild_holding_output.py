"""A grandchild that holds the output open."""

if os.fork() == 0:
    os.setsid()
    time.sleep(302)
    os._exit(0)
print("done")
