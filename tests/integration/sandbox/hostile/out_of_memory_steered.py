"""Small processes beside the large server of the box when memory runs out."""

try:
    with open("/proc/self/oom_score_adj", "r+") as file:
        file.write("0")
except OSError as error:
    print(error)
for _ in range(40):
    if attempt(os.fork) == 0:
        block = bytearray(12 << 20)
        for at in range(0, len(block), 4096):
            block[at] = 1
        time.sleep(60)
time.sleep(60)
