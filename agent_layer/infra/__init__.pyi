# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .backoff import Backoff as Backoff
from .batches import batched as batched
from .busy_clock import BusyClock as BusyClock
from .counts import format_count as format_count, format_number as format_number, mean as mean, quantile as quantile
from .extras import find_extra as find_extra, install_command as install_command
from .files import make_beside as make_beside, make_private as make_private, replace_file as replace_file
from .files import sync_path as sync_path, write_beside as write_beside
from .lines import LineReader as LineReader, append_line as append_line, read_lines as read_lines
from .objects.base import ObjectEntry as ObjectEntry, ObjectStore as ObjectStore
from .objects.filesystem import open_objects as open_objects
from .objects.memory import MemoryObjects as MemoryObjects
from .processes.addresses import free_port as free_port, is_free as is_free, is_listening as is_listening
from .processes.addresses import is_responding as is_responding, reachable_host as reachable_host
from .processes.detached import Detached as Detached, LOCK_DESCRIPTOR as LOCK_DESCRIPTOR
from .processes.detached import start_detached as start_detached
from .processes.file_limit import raise_file_limit as raise_file_limit
from .processes.locks import hold_alone as hold_alone, hold_lock as hold_lock, is_locked as is_locked
from .processes.locks import share_lock as share_lock, try_lock as try_lock
from .processes.marked import kill_marked as kill_marked
from .processes.owned_directories import find_owned_directories as find_owned_directories
from .processes.owned_directories import hold_owned_directory as hold_owned_directory
from .processes.owned_directories import is_owned_directory_held as is_owned_directory_held
from .processes.owned_directories import make_owned_directory as make_owned_directory
from .processes.owned_directories import remove_stale_directories as remove_stale_directories
from .processes.owned_directories import remove_tree as remove_tree
from .processes.pulse import probe_pulse as probe_pulse, read_pulse as read_pulse, write_pulse as write_pulse
from .processes.reaper import ChildExitPipe as ChildExitPipe, KILL_NOW as KILL_NOW, REAPER_PROGRAM as REAPER_PROGRAM
from .processes.reaper import become_subreaper as become_subreaper, die_with_parent as die_with_parent
from .processes.reaper import exit_like as exit_like, kill_descendants as kill_descendants
from .processes.reaper import list_children as list_children, reap as reap
from .processes.restart import RestartHistory as RestartHistory, RestartPolicy as RestartPolicy
from .processes.supervised import ORPHAN_SECONDS as ORPHAN_SECONDS, SupervisedProcess as SupervisedProcess
from .processes.supervised import start_supervised as start_supervised, supervised_command as supervised_command
from .redis.client import AsyncRedis as AsyncRedis, open_async_redis as open_async_redis, open_redis as open_redis
from .redis.clock import ADVANCE_CLOCK as ADVANCE_CLOCK, CLOCK_PRELUDE as CLOCK_PRELUDE, SharedClock as SharedClock
from .redis.durability import GREET as GREET, WaitKind as WaitKind, durable_writes as durable_writes
from .redis.durability import greet_again as greet_again, may_be_torn as may_be_torn
from .redis.durability import read_server_change as read_server_change, rewrite_torn_file as rewrite_torn_file
from .redis.embedded import is_redis_running as is_redis_running, temporary_home as temporary_home
from .redis.key_table import describe_lost as describe_lost
from .redis.keys import Keys as Keys
from .redis.programs import find_redis_server as find_redis_server
from .redis.retry import RedisUnreachableError as RedisUnreachableError
from .redis.scripts import LuaScript as LuaScript, list_commands as list_commands
