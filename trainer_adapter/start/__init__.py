"""Where training starts.

=========== ==========================================================================================
call        ``trainer_adapter.train``: one call in a user's program, which runs a job
job         everything on this machine, as processes: engine, gateway, worker, trainer
ranks       the trainer in one process, or in several that share the model (torchrun)
ray         the trainer on Ray, with its own vLLM servers
plan        the dry run: nothing starts; memory, ray_plan and ray_gpus are its arithmetic
=========== ==========================================================================================

Every one but ``plan`` ends in ``loop/run.py``, which opens the parts of a run and its loop: in this process, or in one
on Ray.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "call": "list_command train train_with_worker",
        "job": "Job open_page run_job",
        "memory": "ModelShape estimate_memory sum_bytes",
        "plan": "HarnessWorker plan_run write_plan",
        "ranks": "run_rank train_on_ranks train_supervised_on_ranks",
        "ray": "train_on_ray",
    },
)
