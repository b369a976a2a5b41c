"""This file holds ``store acl``: Redis users of least privilege, one for each role."""

from typing import Annotated

import typer

from agent_layer.errors import BadInputError
from agent_layer.infra.redis import ROLES, Keys, rules_of


def acl(
    context: typer.Context,
    role: Annotated[str | None, typer.Option(help=f"One of {', '.join(ROLES)}; without it, all.")] = None,
    user: Annotated[str | None, typer.Option(help="Name of the user; without it, agent-layer-ROLE.")] = None,
    redis: Annotated[float, typer.Option(min=6.2, help="Version of the server; from 7 on, rules are tighter.")] = 6.2,
) -> None:
    """Print lines for redis-cli that make a Redis user for each role, of this namespace only."""
    if role is not None and role not in ROLES:
        raise BadInputError(f"--role {role}: expected one of {', '.join(ROLES)}; correct it")
    if user is not None and role is None:
        raise BadInputError("--user: expected --role beside it, found none; say whose rights the user is to have")
    for one in (role,) if role else ROLES:
        name = user or f"agent-layer-{one}"
        typer.echo(" ".join(("ACL", "SETUSER", name, *rules_of(one, Keys(context.obj.namespace), redis))))
    typer.echo("then give each a password: ACL SETUSER NAME '>PASSWORD', and ACL SAVE", err=True)
