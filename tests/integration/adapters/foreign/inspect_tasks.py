"""Tasks of inspect_ai: in one turn, with choices, with tools, judged by a model, with several scores, in a sandbox."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, choice, includes, match, mean, model_graded_qa, scorer
from inspect_ai.solver import generate, multiple_choice, system_message, use_tools
from inspect_ai.tool import tool


@task
def sums(factor: int = 3, num: int = 60):
    samples = [
        Sample(input=f"What is {number} + {number * factor % 11}?", target=str(number + number * factor % 11))
        for number in range(num)
    ]
    return Task(samples, solver=[system_message("Answer with the number."), generate()], scorer=match(numeric=True))


@task
def letters():
    choices = ["one", "two", "three", "four"]
    samples = [
        Sample(
            input=f"Which word has {len(word)} letters and is number {place}?", choices=choices, target="ABCD"[place]
        )
        for place, word in enumerate(choices)
    ]
    return Task(samples, solver=multiple_choice(), scorer=choice())


@tool
def price():
    async def execute(item: str) -> str:
        """Return the price of an item.

        Args:
            item: what is bought.
        """
        return {"tea": "3", "milk": "2"}.get(item, "unknown")

    return execute


@task
def shop():
    samples = [
        Sample(input=f"What do {number} of {item} cost?", target=str(number * price))
        for number in range(2, 8)
        for item, price in (("tea", 3), ("milk", 2))
    ]
    return Task(samples, solver=[use_tools(price()), generate()], scorer=includes())


@task
def graded():
    return Task([Sample(input="Say thanks.", target="polite words")], solver=generate(), scorer=model_graded_qa())


@scorer(metrics=[mean()])
def lengths():
    async def score(state, target):
        text = state.output.completion
        return Score(value={"words": len(text.split()), "is_short": len(text) < 9})

    return score


@task
def several():
    return Task([Sample(input="Say hello.", target="hello")], solver=generate(), scorer=[lengths(), includes()])


@task
def boxed():
    return Task([Sample(input="List files.", target="a")], solver=generate(), scorer=includes(), sandbox="docker")
