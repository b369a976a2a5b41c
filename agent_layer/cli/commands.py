"""Commands that come with the project: name to the function that adds them."""

from typing import Final

COMMANDS: Final = {
    "query": "agent_layer.cli.query.query:register",
    "summary": "agent_layer.cli.query.summary:register",
    "reward": "agent_layer.cli.query.reward:register",
    "export": "agent_layer.cli.query.otlp:register",
    "store": "agent_layer.cli.store.store:register",
    "engines": "agent_layer.cli.services.engines:register",
    "serve": "agent_layer.cli.services.serve:register",
    "up": "agent_layer.cli.services.up:register",
    "doctor": "agent_layer.cli.services.doctor:register",
    "ingest": "agent_layer.cli.services.ingest:register",
    "submit": "agent_layer.cli.queue.submit:register",
    "tasks": "agent_layer.cli.queue.tasks:register",
    "groups": "agent_layer.cli.queue.groups:register",
    "runs": "agent_layer.cli.queue.runs:register",
    "workers": "agent_layer.cli.queue.workers:register",
    "dead": "agent_layer.cli.queue.dead_letters:register",
    "trace": "tracer.cli:register",
    "work": "envs.cli:register",
    "train": "trainer_adapter.cli:register",
    "demo": "trainer_adapter.demo.cli:register",
}
