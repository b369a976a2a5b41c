"""Programs whose behaviour is known, and changes of them."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.tasksets.repair.programs.catalogue import TEMPLATES as TEMPLATES
    from envs.tasksets.repair.programs.catalogue import Bug as Bug
    from envs.tasksets.repair.programs.catalogue import draw_bug as draw_bug
    from envs.tasksets.repair.programs.catalogue import make_probes as make_probes
    from envs.tasksets.repair.programs.catalogue import run_cases as run_cases
    from envs.tasksets.repair.programs.mutations import Mutation as Mutation
    from envs.tasksets.repair.programs.mutations import find_mutations as find_mutations
    from envs.tasksets.repair.programs.rewrites import PLAIN as PLAIN
    from envs.tasksets.repair.programs.rewrites import list_rewrites as list_rewrites
    from envs.tasksets.repair.programs.rewrites import rewrite as rewrite
    from envs.tasksets.repair.programs.template import Call as Call
    from envs.tasksets.repair.programs.template import Case as Case
    from envs.tasksets.repair.programs.template import Template as Template
    from envs.tasksets.repair.programs.template import call as call
    from envs.tasksets.repair.programs.trial import RUNAWAY as RUNAWAY
    from envs.tasksets.repair.programs.trial import Outcome as Outcome
    from envs.tasksets.repair.programs.trial import load_modules as load_modules
    from envs.tasksets.repair.programs.trial import run_case as run_case
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.tasksets.repair.programs.catalogue": (
                "TEMPLATES",
                "Bug",
                "draw_bug",
                "make_probes",
                "run_cases",
            ),
            "envs.tasksets.repair.programs.mutations": (
                "Mutation",
                "find_mutations",
            ),
            "envs.tasksets.repair.programs.rewrites": ("PLAIN", "list_rewrites", "rewrite"),
            "envs.tasksets.repair.programs.template": (
                "Call",
                "Case",
                "Template",
                "call",
            ),
            "envs.tasksets.repair.programs.trial": (
                "RUNAWAY",
                "Outcome",
                "load_modules",
                "run_case",
            ),
        },
    )
