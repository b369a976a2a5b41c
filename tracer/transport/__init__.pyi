# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .gateway_client import GatewayClient as GatewayClient, connect_gateway as connect_gateway
from .inheritance import RewardSink as RewardSink, rollout_from_environment as rollout_from_environment
