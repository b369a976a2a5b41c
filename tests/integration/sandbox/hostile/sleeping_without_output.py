"""A process that has closed its output."""

os.close(1)
os.close(2)
time.sleep(300)
