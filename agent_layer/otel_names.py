"""OpenTelemetry attribute names of records: those of the GenAI conventions, then our own.

Written out, because OpenTelemetry's package marks its module as incubating; a test compares the two. Arrays (token ids,
log-probabilities) are never exported: TRAJECTORY, CALL and STEP locate them in the store.
"""

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
CHOICE_COUNT = "gen_ai.request.choice.count"
FINISH_REASONS = "gen_ai.response.finish_reasons"
RESPONSE_MODEL = "gen_ai.response.model"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_SCORE = "gen_ai.evaluation.score.value"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

SAMPLING = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "stop": "gen_ai.request.stop_sequences",
}
"""Attributes by field name of a chat request."""

CHAT, EXECUTE_TOOL, INVOKE_AGENT = "chat", "execute_tool", "invoke_agent"
"""Values of OPERATION."""

EVALUATION_EVENT = "gen_ai.evaluation.result"

TRAJECTORY = "agent_layer.trajectory_id"
ROLLOUT = "agent_layer.rollout"
"""Alias of TRAJECTORY for other programs: the word of our HTTP headers."""
CALL = "agent_layer.call_id"
STEP = "agent_layer.step"
"""Index of the call's first choice; its other choices follow."""
OBSERVATION = "agent_layer.observation_id"
RUN = "agent_layer.run"
TASK = "agent_layer.task_id"
TASK_TYPE = "agent_layer.task_type"
SPLIT = "agent_layer.split"
GROUP = "agent_layer.group_id"
STATUS = "agent_layer.status"
CAUSE = "agent_layer.cause"
ACCEPTED = "agent_layer.accepted"
REWARD = "agent_layer.reward"
ROLE = "agent_layer.role"
CAPTURE_LEVEL = "agent_layer.capture_level"
FINDINGS = "agent_layer.findings"
POLICY_VERSIONS = "agent_layer.policy_versions"
"""Versions that sampled any of the call's tokens, without repetition."""
SCORE_SCOPE = "agent_layer.reward.scope"
SCORE_SOURCE = "agent_layer.reward.source"
