"""Scores and episodes of reasoning-gym and Gymnasium, by our adapters and by the packages alone.

python play_light.py answers SET …  > answers.json    our scores of answers to the tasks of sets
python play_light.py scores answers.json              the package's own scores of the same
python play_light.py episodes > episodes.json         episodes by our environments
python play_light.py rewards episodes.json            the same by Gymnasium's own loop
"""

import asyncio
import contextlib
import json
import random
import sys
from pathlib import Path

NAMES = [
    *("FrozenLake-v1", "FrozenLake-v1?map_name=8x8&is_slippery=false", "Taxi-v4", "Blackjack-v1", "CartPole-v1"),
    *("CliffWalking-v1?max_episode_steps=30", "CliffWalkingSlippery-v1?max_episode_steps=30", "MountainCar-v0"),
    *("text_world:Echo-v0?max_episode_steps=5", "text_world:Dials-v0"),
]
SEEDS = range(5)


def score_answers(names):
    from envs.tasksets import Script, open_taskset  # noqa: PLC0415  # the package alone must do without ours
    from envs.tasksets.gate.script_judge import ScriptJudge  # noqa: PLC0415

    async def score(name):
        taskset = open_taskset(f"reasoning-gym:{name}")
        (task,) = taskset.tasks(split="train", seed=7, count=1)
        own, others, cheats = taskset.solve(task), taskset.mutants(task), taskset.cheats(task)
        half = own.replies[0]["content"].removeprefix("<answer>").removesuffix("</answer>")
        texts = [one.replies[0]["content"] for one in (own, *others[:2], cheats[0], cheats[2])]
        texts += [f"<answer>{half[: len(half) // 2]}</answer>", f"<answer>{half} {half}</answer>", half]
        rows = []
        for text in texts:
            script = Script(name="answer", replies=[{"content": text}])
            judged = await ScriptJudge(None).judge(task, script)
            rows.append({**task.grading, "text": text, "ours": judged.reward})
        return rows

    return [row for name in names for row in asyncio.run(score(name))]


def score_alone(rows):
    import reasoning_gym  # noqa: PLC0415
    from reasoning_gym.utils import extract_answer  # noqa: PLC0415

    found = []
    for row in rows:
        dataset = reasoning_gym.create_dataset(row["dataset"], seed=row["seed"], size=100, **row["options"])
        try:
            found.append(dataset.score_answer(extract_answer(row["text"]), dataset[row["index"]]))
        except Exception:  # noqa: BLE001  # some raise at an odd answer, which then earns nothing
            found.append(0.0)
    return found


def play_episodes():
    from agent_layer.schema import Task  # noqa: PLC0415
    from envs.registry import find_object  # noqa: PLC0415

    async def play(name, seed):
        environment, rng = find_object(f"gymnasium:{name}", "agent")(), random.Random(seed)
        await environment.reset(Task(id="a", run="r", seed=seed))
        space, actions, rewards, shown, done = environment._env.action_space, [], [], [], False
        is_text = isinstance(space.sample(), str)
        space.seed(seed)
        while not done:
            if rng.random() < 0.2:
                before = environment.state()
                words = ["ÄÖ", "", "longer than it hears"]
                words += [] if is_text else ["fly", "99", "[7,7]", "-1", "0.5", "nan", "true", "[[0]]", "[1,1e9]", "{}"]
                illegal = await environment.step(rng.choice(words))
                assert (illegal.reward, illegal.done, environment.state()) == (None, False, before), illegal
            action = (space.sample().strip() or "a") if is_text else space.sample().tolist()
            text = action if is_text else json.dumps(action)
            result = await environment.step(f"<action>0</action> No: <action> {text} </action>")
            actions.append(action)
            rewards.append(result.reward)
            shown.append(result.observation)
            done = result.done
        state = environment.state()
        await environment.close()
        return {"name": name, "seed": seed, "actions": actions, "rewards": rewards, "shown": shown, "state": state}

    return [asyncio.run(play(name, seed)) for name in NAMES for seed in SEEDS]


def play_alone(episodes):
    import gymnasium  # noqa: PLC0415

    found = []
    for episode in episodes:
        name, _, query = episode["name"].partition("?")
        options = dict(pair.split("=") for pair in query.split("&")) if query else {}
        options = {key: json.loads(value) if key != "map_name" else value for key, value in options.items()}
        env = gymnasium.make(name, **options)
        env.reset(seed=episode["seed"])
        rewards, ended = [], (False, False)
        for action in episode["actions"]:
            _, reward, *ended, _ = env.step(action)
            rewards.append(float(reward))
        env.close()
        state = {"steps": len(rewards), "reward": sum(rewards), "terminated": ended[0], "truncated": ended[1]}
        found.append({"rewards": rewards, "state": state})
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    part, *words = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):  # reasoning-gym prints
        if part in ("scores", "rewards"):
            read = json.loads(Path(words[0]).read_text())
            made = score_alone(read) if part == "scores" else play_alone(read)
        else:
            made = score_answers(words) if part == "answers" else play_episodes()
    sys.stdout.write(json.dumps(made) + "\n")
