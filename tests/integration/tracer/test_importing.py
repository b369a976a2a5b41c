import subprocess
import sys

import pytest

import tracer
from agent_layer.errors import BadInputError


def python(program):
    """Run a program in a process of its own; give its output."""
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def test_importing_the_tracer_loads_nothing_heavy():
    heavy = {"torch", "pydantic", "openai", "langchain_core", "opentelemetry", "redis", "boto3", "aiohttp", "asyncio"}

    loaded = python("import sys, tracer; print(*sys.modules)").split()

    assert heavy & set(loaded) == set()
    ours = {name for name in loaded if name.startswith(("tracer.", "agent_layer"))}
    assert ours == {"agent_layer", "agent_layer.lazy"}


def test_every_name_of_the_tracer_is_there():
    assert [name for name in tracer.__all__ if not hasattr(tracer, name)] == []
    assert tracer.rollout is not sys.modules.get("tracer.rollout")
    with pytest.raises(AttributeError, match="no attribute 'rollouts_of_yore'"):
        _ = tracer.rollouts_of_yore


@pytest.mark.parametrize(
    "order",
    [
        "import openai, langchain_openai; tracer.instrument()",
        "tracer.instrument(); tracer.instrument(); from langchain_openai import ChatOpenAI; import openai",
    ],
)
def test_clients_are_traced_whether_they_are_imported_before_or_after(order):
    output = python(
        f"import tracer; {order}\n"
        "from langchain_core.callbacks import CallbackManager\n"
        "handlers = [type(one).__name__ for one in CallbackManager.configure().handlers]\n"
        "print(openai.OpenAI.request.__wrapped__.__qualname__, openai.AsyncOpenAI.request.__wrapped__ is not None,"
        " handlers.count('GraphHandler'))"
    )

    assert output == "SyncAPIClient.request True 1"


def test_instrumenting_one_client_leaves_the_others_alone():
    output = python(
        "import sys, tracer; tracer.instrument('openai'); import langchain_core.tracers.context\n"
        "print('tracer.integrations.langgraph' in sys.modules)"
    )

    assert output == "False"


def test_a_client_that_nobody_can_trace_is_refused():
    with pytest.raises(BadInputError, match="expected one of openai, anthropic, google, litellm, langgraph"):
        tracer.instrument("carrier-pigeon")


def test_a_module_that_fails_to_import_is_still_waited_for(tmp_path):
    (tmp_path / "shaky.py").write_text("import sys\nif not hasattr(sys, 'ready'): raise RuntimeError('not yet')\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from tracer.integrations.patching import after_import\n"
        "acted = []; after_import('shaky', lambda: acted.append('shaky' in sys.modules))\n"
        "try: import shaky\n"
        "except RuntimeError: pass\n"
        "sys.ready = True; import shaky; print(acted)"
    )

    assert python(program) == "[True]"
