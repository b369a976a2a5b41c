"""A worker without privileges that changes a file of an image in a box: image_run.py KIND USER IMAGE."""

import asyncio
import sys
from importlib import import_module
from pathlib import Path

from envs.sandbox import SandboxSpec
from envs.sandbox.registry import make_kind

sys.path.insert(0, str(Path(__file__).parent))
attack_run = import_module("attack_run")


async def change_image(kind_name: str, image: str) -> int:
    """Change it in a box, and report the box's view; 2: the kind does not work for this user."""
    kind = make_kind(kind_name)
    try:
        if not (support := await kind.probe()).works:
            print(support.reason)
            return 2
        box = await kind.start(SandboxSpec(kind=kind_name, image=image), owner="test")
        result = await box.exec(["sh", "-c", "echo mine > /srv/data/mark; cat /srv/data/mark; id -u"])
        print(result.stdout.decode(), end="")
        print(result.stderr.decode(), end="", file=sys.stderr)
        return 0
    finally:
        await kind.close()


def main() -> int:
    """Become the user and run."""
    kind_name, user, image = sys.argv[1:]
    asyncio.run(attack_run.warm_up(kind_name))
    attack_run.become(int(user))
    return asyncio.run(change_image(kind_name, image))


sys.exit(main())
