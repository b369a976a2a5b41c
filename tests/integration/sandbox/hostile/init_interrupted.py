"""Every signal to the first process of the box: Python programs handle some, and would end by SIGINT."""

for number in range(1, signal.NSIG):
    attempt(os.kill, 1, number)
time.sleep(0.2)
print("alive")
