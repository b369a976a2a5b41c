"""Options of commands that read Harbor tasks: which images stand for theirs, and what they may do."""

from typing import Annotated, TypeAlias

import typer

from agent_layer.errors import BadInputError
from agent_layer.settings import Settings

ImageMap: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--image-map",
        metavar="NAME=LOCAL",
        help="Of Harbor tasks: a root directory, or an OCI image as a layout or archive, for an image by name or"
        " pattern. Several times; beside AGENT_LAYER_IMAGE_MAP.",
    ),
]
AllowNetwork: TypeAlias = Annotated[
    bool, typer.Option("--allow-network", help="Harbor tasks that ask for a public network may run, and get it.")
]
SharedVerifier: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--shared-verifier",
        help="Harbor tasks whose tests look for running processes may run: only files of the agent travel to them.",
    ),
]


def read_task_options(
    settings: Settings, image_map: list[str] | None, *, allow_network: bool, shared_verifier: bool
) -> Settings:
    """Return the settings with these options.

    Raises: BadInputError: an option is none of the form NAME=LOCAL.
    """
    for text in image_map or ():
        if not all(text.rpartition("=")[::2]) or "," in text:
            raise BadInputError(
                f"--image-map: expected NAME=LOCAL such as ubuntu:24.04=/roots/ubuntu, found {text!r}; correct it"
            )
    changes = {
        "image_map": ",".join([*(image_map or ()), *filter(None, [settings.image_map])]),
        "allow_network": settings.allow_network or allow_network,
        "shared_verifier": settings.shared_verifier or shared_verifier,
    }
    return settings.model_copy(update=changes)
