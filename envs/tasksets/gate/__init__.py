"""The gate of task sets: no set trains before right solutions score 1 and all others 0."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.tasksets.gate.gate import CHECKS as CHECKS
    from envs.tasksets.gate.gate import Failure as Failure
    from envs.tasksets.gate.gate import GateOptions as GateOptions
    from envs.tasksets.gate.gate import Progress as Progress
    from envs.tasksets.gate.gate import Report as Report
    from envs.tasksets.gate.gate import check_taskset as check_taskset
    from envs.tasksets.gate.gate import print_hashes as print_hashes
    from envs.tasksets.gate.records import check_trainable as check_trainable
    from envs.tasksets.gate.records import find_report as find_report
    from envs.tasksets.gate.records import find_taskset as find_taskset
    from envs.tasksets.gate.records import save_report as save_report
    from envs.tasksets.gate.records import write_task_line as write_task_line
    from envs.tasksets.gate.script_judge import Judgement as Judgement
    from envs.tasksets.gate.script_judge import ScriptJudge as ScriptJudge
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.tasksets.gate.gate": (
                "CHECKS",
                "Failure",
                "GateOptions",
                "Progress",
                "Report",
                "check_taskset",
                "print_hashes",
            ),
            "envs.tasksets.gate.records": (
                "check_trainable",
                "find_report",
                "find_taskset",
                "save_report",
                "write_task_line",
            ),
            "envs.tasksets.gate.script_judge": ("Judgement", "ScriptJudge"),
        },
    )

__all__ = ["Failure", "GateOptions", "Report", "check_taskset", "check_trainable"]
