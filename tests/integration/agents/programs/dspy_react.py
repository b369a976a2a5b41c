"""DSPy's ReAct module. It rewrites the whole prompt each turn, so no call continues another."""

import dspy


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


dspy.configure(lm=dspy.LM("openai/gpt-any", cache=False))
print(dspy.ReAct("question -> answer", tools=[add], max_iters=3)(question="what is 40 + 2").answer)
