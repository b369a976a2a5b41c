"""An environment of the API of verifiers before 0.4."""

import verifiers as vf


def load_environment(num=3):
    parser = vf.XMLParser(["answer"])

    async def right(completion, answer):
        return float(parser.parse_answer(completion) == answer)

    rubric = vf.Rubric(funcs=[right, parser.get_format_reward_func()], weights=[1.0, 0.2], parser=parser)
    rows = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(num)]
    return vf.SingleTurnEnv(dataset=rows, parser=parser, rubric=rubric)
