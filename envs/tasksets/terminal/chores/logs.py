"""Level 0: counts and lists out of logs, crontabs and manifests of text."""

from collections import Counter
from hashlib import sha256
from random import Random

from envs.tasksets.terminal.chores.chore import Chore, join_lines, python

_PATHS = ("/", "/cart", "/login", "/items/7", "/items/12", "/search", "/help", "/pay")
_NAMES = ("ada", "ben", "cleo", "dora", "emil", "finn", "gus", "hana")


def draw_errors(rng: Random) -> Chore:
    """Return a chore: requests that failed, by path."""
    lines, failed = list[str](), Counter[str]()
    for second in range(rng.randrange(120, 200)):
        path, status = rng.choice(_PATHS), rng.choice((200, 200, 200, 304, 404, 500, 502, 503))
        failed[path] += status >= 500
        stamp = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        lines.append(
            f'10.0.0.{rng.randrange(1, 9)} [{stamp}] "GET {path} HTTP/1.1" {status} {rng.randrange(500, 5000)}'
        )
    ordered = sorted(((count, path) for path, count in failed.items() if count), key=lambda one: (-one[0], one[1]))
    return Chore(
        instruction="access.log has one request a line. Write errors.txt: for each path with answers of status 500"
        " and above, a line 'COUNT PATH', the largest count first, and paths of the same count in the order of the"
        " alphabet.",
        files={"access.log": join_lines(lines)},
        solution="awk '$6 >= 500 { count[$4]++ } END { for (path in count) print count[path], path }' access.log"
        " | LC_ALL=C sort -k1,1nr -k2,2 > errors.txt\n",
        results={"errors.txt": join_lines([f"{count} {path}" for count, path in ordered])},
    )


def draw_sessions(rng: Random) -> Chore:
    """Return a chore: the longest session of each user."""
    clock, since, longest = 0, dict[str, int](), dict[str, int]()
    lines = list[str]()
    for _ in range(rng.randrange(60, 90)):
        clock += rng.randrange(5, 600)
        user = rng.choice(_NAMES)
        event = "logout" if user in since else "login"
        lines.append(f"{clock} {user} {event}")
        if user in since:
            longest[user] = max(longest.get(user, 0), clock - since.pop(user))
        else:
            since[user] = clock
    return Chore(
        instruction="sessions.log has lines 'SECOND USER login' and 'SECOND USER logout', in the order of time. Write"
        " longest.json: an object of the longest finished session of each user, in seconds. A user without a finished"
        " session is not in it.",
        files={"sessions.log": join_lines(lines)},
        solution=python(
            """
import json
begun, longest = {}, {}
for line in open("sessions.log"):
    at, user, event = line.split()
    if event == "login":
        begun[user] = int(at)
    elif user in begun:
        longest.setdefault(user, []).append(int(at) - begun.pop(user))
json.dump({user: max(found) for user, found in longest.items()}, open("longest.json", "w"))
"""
        ),
        results={"longest.json": dict(longest)},
    )


def draw_rotated(rng: Random) -> Chore:
    """Return a chore: rotated logs, one of them compressed, as one."""
    lines = sorted({f"{rng.randrange(10**6):06} {rng.choice(_NAMES)} {rng.choice(_PATHS)}" for _ in range(90)})
    parts = [sorted(rng.sample(lines, 50)) for _ in range(3)]
    parts[0] = sorted({*parts[0], *(line for line in lines if not any(line in part for part in parts))})
    return Chore(
        instruction="logs/ has app.log, app.log.1 and app.log.2.gz; their lines begin with a number of six digits,"
        " and some lines are in several of them. Write all.log: every line once, in the order of the numbers and then"
        " of the alphabet.",
        files={f"logs/app.log{suffix}": join_lines(part) for suffix, part in zip(("", ".1", ".2"), parts, strict=True)},
        prepare="gzip -n logs/app.log.2\n",
        solution="{ cat logs/app.log logs/app.log.1; zcat logs/app.log.2.gz; } | LC_ALL=C sort -u > all.log\n",
        results={"all.log": join_lines(lines)},
    )


def draw_cron(rng: Random) -> Chore:
    """Return a chore: how often the jobs of a crontab run."""
    lines, runs = ["# minute hour day month weekday command", "SHELL=/bin/sh", ""], dict[str, object]()
    for number, name in enumerate(rng.sample(_NAMES, 6)):
        every = rng.choice((5, 10, 15, 20, 30))
        first = rng.randrange(0, 12)
        last = rng.randrange(first, 24)
        minute, per_hour = rng.choice(((f"*/{every}", 60 // every), (str(rng.randrange(60)), 1), ("0,20,40", 3)))
        hour, hours = rng.choice((("*", 24), (f"{first}-{last}", last - first + 1), (str(first), 1)))
        is_off = number == 3  # one of them is a comment
        lines.append(f"{'# ' if is_off else ''}{minute} {hour} * * * /usr/local/bin/{name}.sh --quiet")
        if not is_off:
            runs[name] = per_hour * hours
    return Chore(
        instruction="Write runs.json: an object that has, for each job in the file crontab, the name of its program"
        " without folder and '.sh', and how often it runs on one day. Lines that are commented out do not count.",
        files={"crontab": join_lines(lines)},
        solution=python(
            """
import json, re
def times(field, size):
    found = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, high = (0, size - 1) if span == "*" else map(int, (span.split("-") * 2)[:2])
        found |= set(range(low, high + 1, int(step or 1)))
    return len(found)
runs = {}
for line in open("crontab"):
    if re.match(r"[0-9*]", line):
        minute, hour, *_, command, _ = line.split()
        runs[command.split("/")[-1][:-3]] = times(minute, 60) * times(hour, 24)
json.dump(runs, open("runs.json", "w"))
"""
        ),
        results={"runs.json": runs},
    )


def draw_manifest(rng: Random) -> Chore:
    """Return a chore: files that are not what a manifest says."""
    files, manifest, wrong = dict[str, str](), list[str](), list[str]()
    for number in range(rng.randrange(14, 20)):
        path, text = f"data/{rng.choice(_NAMES)}-{number}.txt", f"{rng.getrandbits(64):x}\n"
        fate = rng.choice(("kept", "kept", "changed", "missing"))
        manifest.append(f"{sha256(text.encode()).hexdigest()}  {path}")
        if fate != "kept":
            wrong.append(f"{fate} {path}")
        if fate != "missing":
            files[path] = text if fate == "kept" else text.upper() + "x"
    rng.shuffle(manifest)
    return Chore(
        instruction="manifest.sha256 lists files below data/ with their SHA-256, as sha256sum writes it. Write"
        " damaged.txt: a line 'changed PATH' or 'missing PATH' for each file that is not as listed, sorted as"
        " 'LC_ALL=C sort' does.",
        files={**files, "manifest.sha256": join_lines(manifest)},
        solution="""while read -r hash path; do
  if [ ! -e "$path" ]; then echo "missing $path"
  elif [ "$(sha256sum < "$path" | cut -d' ' -f1)" != "$hash" ]; then echo "changed $path"; fi
done < manifest.sha256 | LC_ALL=C sort > damaged.txt
""",
        results={"damaged.txt": join_lines(sorted(wrong))},
    )
