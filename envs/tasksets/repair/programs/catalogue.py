"""The bugs of each template: mutations that change its behaviour, each of one split only."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from random import Random
from typing import Final

import msgspec

from agent_layer.schema import Split
from envs.tasksets import choose_split
from envs.tasksets.repair.programs.draws import DRAWS
from envs.tasksets.repair.programs.mutations import Mutation, find_mutations
from envs.tasksets.repair.programs.template import Case, Template, read_template
from envs.tasksets.repair.programs.trial import RUNAWAY, Outcome, load_modules, run_case

TEMPLATES: Final[Sequence[Template]] = [read_template(name, draw) for name, draw in DRAWS.items()]
"""Templates in a fixed order: tasks are drawn from it."""
_NUM_PROBES = 150
_ENOUGH_CHANGED = 8
"""Probes that a bug changes, after which no more are tried."""
_MIN_CHANGED = 4
"""Probes that a bug has to change: some are shown to the agent, others are hidden."""


class Bug(msgspec.Struct, frozen=True, kw_only=True):
    """A mutation of a template that changes what it returns."""

    template: Template
    mutation: Mutation
    changed: Sequence[Case]
    """Cases whose outcome it changes."""

    @property
    def id(self) -> str:
        """Equal for equal bugs, whatever the identifiers are called."""
        return f"{self.template.name}:{self.mutation.name}"


@cache
def make_probes(template: Template) -> Sequence[Case]:
    """Return cases that describe the template's behaviour."""
    rng = Random(f"probes of {template.name}")
    probes = [*template.edges, *(template.draw(rng) for _ in range(_NUM_PROBES))]
    rng.shuffle(probes)
    return probes


@cache
def probe_outcomes(template: Template) -> Sequence[Outcome]:
    """Return the right outcome of each probe."""
    return run_cases(template.source, template.name, make_probes(template))


def run_cases(source: str, module: str, cases: Iterable[Case]) -> list[Outcome]:
    """Return the outcome of each case of one module."""
    modules = load_modules({f"{module}.py": source})
    return [run_case(modules, module, case) for case in cases]


@cache
def list_mutations(template: Template, split: Split) -> Mapping[str, Sequence[Mutation]]:
    """Return the mutations of one split by kind, harmless ones included. No mutation is in two splits."""
    found: dict[str, list[Mutation]] = {}
    for mutation in find_mutations(template.source):
        if _choose_split(template, mutation) == split:
            found.setdefault(mutation.kind, []).append(mutation)
    return found


@cache
def try_mutation(template: Template, mutation: Mutation) -> Bug | None:
    """Return the mutation as a bug; None: it changes too little, or the code never ends."""
    changed: list[Case] = []
    try:
        modules = load_modules({f"{template.name}.py": mutation.apply(template.source)})
    except Exception:  # noqa: BLE001  # a mutant may raise anything
        return None
    for case, expected in zip(make_probes(template), probe_outcomes(template), strict=True):
        outcome = run_case(modules, template.name, case)
        if outcome == RUNAWAY:
            return None
        if outcome != expected:
            changed.append(case)
        if len(changed) >= _ENOUGH_CHANGED:
            break
    return Bug(template=template, mutation=mutation, changed=changed) if len(changed) >= _MIN_CHANGED else None


def draw_bug(template: Template, split: Split, rng: Random, *, is_short: bool = False) -> Bug:
    """Return a random bug; each kind of mutation is equally likely.

    Args:
        template: where it is.
        split: of the task.
        rng: decides.
        is_short: only edits within one line.
    """
    kinds = list_mutations(template, split)
    while True:
        mutation = rng.choice(kinds[rng.choice(sorted(kinds))])
        if is_short and "\n" in mutation.old:
            continue
        if (bug := try_mutation(template, mutation)) is not None:
            return bug


def _choose_split(template: Template, mutation: Mutation) -> Split:
    """Whatever the identifiers are called in a task, its bug is in the same split."""
    return choose_split(f"{template.name}:{mutation.name}")
