"""The driver on Ray: stock veRL trains, its own vLLM servers sample, our loop decides what is trained when."""

from agent_layer.lazy import face

__getattr__, __all__ = face(__name__, {"launch": "plan_on_ray train_on_ray"})
