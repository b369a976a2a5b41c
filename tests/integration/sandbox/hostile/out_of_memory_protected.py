"""Another process chosen when memory runs out."""

for pid in ("self", "1", str(FACTS["victim"])):
    try:
        with open(f"/proc/{pid}/oom_score_adj", "r+") as file:
            file.write("-1000")
        escaped(f"{pid} is spared")
    except OSError as error:
        print(error)
