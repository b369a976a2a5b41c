# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .environment import Inheritance as Inheritance, SANDBOX_VARIABLE as SANDBOX_VARIABLE
from .environment import adopt_environment as adopt_environment, agent_environment as agent_environment
from .environment import program_environment as program_environment, read_inheritance as read_inheritance
from .environment import read_model_key as read_model_key, read_sandbox_address as read_sandbox_address
from .environment import set_temporary_directory as set_temporary_directory
from .settings import Settings as Settings, load_settings as load_settings
