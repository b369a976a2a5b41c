"""Level 2: archives, modes, links and sizes."""

from random import Random

from envs.tasksets.terminal.chores.chore import Chore, join_lines, python

_FOLDERS = ("a", "b", "b/c", "d e", "d e/f")
_WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath")


def _draw_paths(rng: Random, count: int, suffixes: tuple[str, ...] = ("txt", "log", "md")) -> list[str]:
    return [
        f"tree/{rng.choice(_FOLDERS)}/{word}{number}.{rng.choice(suffixes)}"
        for number, word in enumerate(rng.choices(_WORDS, k=count))
    ]


def draw_nested(rng: Random) -> Chore:
    """Return a chore: a word in an archive in an archive."""
    paths = _draw_paths(rng, 24)
    word, place = f"{rng.choice(_WORDS)}-{rng.randrange(10**6)}", rng.choice(paths)
    files = {path: f"nothing {rng.randrange(10**6)}\n" for path in paths} | {place: f"token: {word}\n"}
    return Chore(
        instruction="box.zip has archives, which have archives. One text in them has a line 'token: ' and a word."
        " Write token.txt: the path of that text in its innermost archive, and in a second line the word.",
        files=files,
        prepare="""for folder in a b 'd e'; do
  [ -d "tree/$folder" ] && tar -czf "${folder// /_}.tar.gz" "tree/$folder"
done
tar -cJf inner.tar.xz *.tar.gz
python3 -m zipfile -c box.zip inner.tar.xz
rm -r tree inner.tar.xz *.tar.gz
""",
        solution="""python3 -m zipfile -e box.zip . && tar -xJf inner.tar.xz
for one in *.tar.gz; do
  tar -xzf "$one"
done
path=$(grep -rl '^token: ' tree)
{ echo "$path"; sed -n 's/^token: //p' "$path"; } > token.txt
""",
        results={"token.txt": f"{place}\n{word}\n"},
    )


def draw_changes(rng: Random) -> Chore:
    """Return a chore: what differs between two archives."""
    files, changes = dict[str, str](), list[str]()
    for path in _draw_paths(rng, 26):
        name, text = path.removeprefix("tree/"), f"{rng.getrandbits(48):x}\n"
        fate = rng.choice(("same", "same", "added", "removed", "changed"))
        if fate != "added":
            files[f"old/{name}"] = text
        if fate != "removed":
            files[f"new/{name}"] = text if fate != "changed" else text.upper() + "1\n"
        if fate != "same":
            changes.append(f"{fate} {name}")
    return Chore(
        instruction="old.tar.gz and new.tar.gz have the same folder at two times. Write changes.txt: a line 'added"
        " PATH', 'removed PATH' or 'changed PATH' for each file that differs, with paths below old/ and new/, sorted"
        " as 'LC_ALL=C sort' does.",
        files=files,
        prepare="mkdir -p old new && tar -czf old.tar.gz old && tar -czf new.tar.gz new && rm -r old new\n",
        solution=python(
            """
import tarfile
def read(name):
    with tarfile.open(f"{name}.tar.gz") as archive:
        return {m.name.partition("/")[2]: archive.extractfile(m).read() for m in archive if m.isfile()}
old, new = read("old"), read("new")
lines = [f"added {path}" for path in new.keys() - old.keys()]
lines += [f"removed {path}" for path in old.keys() - new.keys()]
lines += [f"changed {path}" for path in old.keys() & new.keys() if old[path] != new[path]]
open("changes.txt", "w").write("".join(line + "\\n" for line in sorted(lines)))
"""
        ),
        results={"changes.txt": join_lines(sorted(changes))},
    )


def draw_modes(rng: Random) -> Chore:
    """Return a chore: files that others may write."""
    modes = {
        path: rng.choice((0o644, 0o600, 0o666, 0o664, 0o755, 0o757, 0o646, 0o640)) for path in _draw_paths(rng, 24)
    }
    found = sorted((path, mode) for path, mode in modes.items() if mode & 0o002)
    return Chore(
        instruction="Write open.txt: a line 'MODE PATH' for each file below tree/ that everyone may write, such as"
        " '666 tree/a/x.md', sorted by path as 'LC_ALL=C sort' does. Change no mode.",
        files=dict.fromkeys(modes, "x\n"),
        prepare="".join(f"chmod {mode:o} '{path}'\n" for path, mode in modes.items()),
        solution="find tree -type f -perm -002 -printf '%m %p\\n' | LC_ALL=C sort -k2 > open.txt\n",
        results={"open.txt": join_lines([f"{mode:o} {path}" for path, mode in found])},
    )


def draw_links(rng: Random) -> Chore:
    """Return a chore: links that lead nowhere."""
    paths = _draw_paths(rng, 16)
    links, dangling = list[str](), list[str]()
    for number, path in enumerate(rng.choices(paths, k=14)):
        is_dangling = rng.random() < 0.4
        target = f"{path}.gone" if is_dangling else path
        link = f"tree/{rng.choice(('a', 'b', 'links'))}/link{number}"
        links.append(f"mkdir -p \"$(dirname '{link}')\" && ln -s '../../{target}' '{link}'\n")
        if is_dangling:
            dangling.append(f"{link} -> ../../{target}")
    return Chore(
        instruction="Some symbolic links below tree/ lead to nothing. Write dangling.txt: a line 'LINK -> TARGET' for"
        " each of these, the target as the link has it, sorted as 'LC_ALL=C sort' does.",
        files=dict.fromkeys(paths, "x\n"),
        prepare="".join(links),
        solution="find tree -xtype l -printf '%p -> %l\\n' | LC_ALL=C sort > dangling.txt\n",
        results={"dangling.txt": join_lines(sorted(dangling))},
    )


def draw_sizes(rng: Random) -> Chore:
    """Return a chore: bytes by kind of file."""
    files = {path: "x" * rng.randrange(1, 400) for path in _draw_paths(rng, 40, ("txt", "log", "md", "tar.gz", "TXT"))}
    sizes = dict[str, object]()
    for path, text in files.items():
        suffix = path.rpartition(".")[2].lower()
        sizes[suffix] = int(str(sizes.get(suffix, 0))) + len(text)
    return Chore(
        instruction="Write sizes.json: an object of the bytes of all files below tree/ for each last ending of their"
        " names, in small letters and without the point: 'x.tar.gz' counts for 'gz', 'y.TXT' for 'txt'.",
        files=files,
        solution=python(
            """
import json, os
sizes = {}
for folder, _, names in os.walk("tree"):
    for name in names:
        ending = name.split(".")[-1].lower()
        sizes[ending] = sizes.get(ending, 0) + os.path.getsize(os.path.join(folder, name))
json.dump(sizes, open("sizes.json", "w"))
"""
        ),
        results={"sizes.json": sizes},
    )
