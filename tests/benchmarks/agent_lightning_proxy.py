"""Agent Lightning's proxy as a process: its own defaults, its own in-memory store.

``agent_lightning_proxy.py PORT ENGINE_URL NUM_ROLLOUTS`` runs in the peers' environment, opens the rollouts and prints
the path of each. Version 0.3; later ones were not on the package index when this was written.
"""

import asyncio
import sys

from agentlightning.llm_proxy import LLMProxy
from agentlightning.store.memory import InMemoryLightningStore
from agentlightning.utils.server_launcher import PythonServerLauncherArgs

PROVIDER = "hosted_vllm/policy"


async def serve(port: int, engine_url: str, num_rollouts: int) -> None:
    """Serve until the process ends."""
    store = InMemoryLightningStore(thread_safe=True)
    model = {"model_name": "policy", "litellm_params": {"model": PROVIDER, "api_base": f"{engine_url}/v1"}}
    where = PythonServerLauncherArgs(port=port, host="127.0.0.1", launch_mode="asyncio", healthcheck_url=None)
    proxy = LLMProxy(launcher_args=where, store=store, model_list=[model])
    await proxy.start()
    for _ in range(num_rollouts):
        rollout = await store.start_rollout(input={})
        print(f"/rollout/{rollout.rollout_id}/attempt/{rollout.attempt.attempt_id}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
