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

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.start.call import train as train
    from trainer_adapter.start.job import Job as Job
    from trainer_adapter.start.job import open_page as open_page
    from trainer_adapter.start.job import run_job as run_job
    from trainer_adapter.start.plan import plan_run as plan_run
    from trainer_adapter.start.plan import write_plan as write_plan
    from trainer_adapter.start.ranks import run_rank as run_rank
    from trainer_adapter.start.ranks import train_on_ranks as train_on_ranks
    from trainer_adapter.start.ray import train_on_ray as train_on_ray
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.start.call": ("train",),
            "trainer_adapter.start.job": ("Job", "open_page", "run_job"),
            "trainer_adapter.start.plan": ("plan_run", "write_plan"),
            "trainer_adapter.start.ranks": ("run_rank", "train_on_ranks"),
            "trainer_adapter.start.ray": ("train_on_ray",),
        },
    )
