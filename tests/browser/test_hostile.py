"""Sixty hostile strings as prompts, answers, tools, agents, labels and addresses: each stays a text, whatever shows it.

A trajectory that holds them is compared with one of the same shape that holds plain words: the same elements must be
there. A string that became markup, an attribute or a style would change that.
"""

from collections import Counter

import msgspec

from agent_layer.schema.record import TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.step import Action, Observation, PromptDelta, StepState
from agent_layer.schema.task import Task
from agent_layer.schema.training import Vocabulary
from agent_layer.state.vocabularies import store_vocabulary

from ..builders import attempt, call, closed_group, content
from ..integration.view.test_view import viewed  # noqa: F401 - the store that the API's own tests read
from ..stored import write_segment
from .hostile import HOSTILE
from .test_views import chromium, tab  # noqa: F401 - the browser and the server of the other tests

_NAMES = ["javascript:alert~1", "data:text~html", "constructor", "hasOwnProperty", "toString", "x1~.~._:-"]
"""What the rules for names allow and programs stumble over."""
_WATCH = (
    "window.broken = []; addEventListener('securitypolicyviolation', event => window.broken.push(event.blockedURI))"
)
_ELEMENTS = "[...document.querySelectorAll('main *')].map(one => one.tagName + (one.closest('svg') ? ' in svg' : ''))"
_ATTRIBUTES = """[...document.querySelectorAll('*')].flatMap(one => [...one.attributes].filter(
  ({name, value}) => /^on|^srcdoc$/i.test(name)
    || (/^(href|src|action|data|xlink:href)$/i.test(name) && !/^(#|[a-z/-]+\\.(js|css|svg)$)/i.test(value)))
  .map(({name, value}) => `${one.tagName} ${name}=${value}`))"""


_WALK = """async texts => {
  const lost = [];
  for (const text of texts) {
    location.hash = '#/run/' + encodeURIComponent(text);
    for (let frame = 0; document.querySelector('h1')?.textContent !== text; frame += 1) {
      if (frame > 500) { lost.push(text); break }
      await new Promise(done => setTimeout(done, 20));
    }
  }
  return lost;
}"""
"""Show each text as the name of a run; return those that the page does not show as they are."""


def test_sixty_hostile_strings_stay_text(tab, viewed):  # noqa: F811 - the fixtures imported above
    dialogs, plain = [], [f"plain {number} ".ljust(len(text), "x") for number, text in enumerate(HOSTILE)]
    _store(viewed.store, "plain", "words", plain)
    _store(viewed.store, "hostile", _NAMES[0], HOSTILE)
    tab.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    tab.page.add_init_script(_WATCH)

    for view in ("#/trajectory/{0}.0-0", "#/trajectory/{0}.0-0?tab=tokens", "#/group/{0}"):
        elements = []
        for name in ("plain", "hostile"):
            shown = tab.open(view.format(name))
            tab.page.wait_for_function("!document.querySelector('main .loading')")
            elements.append(Counter(tab.page.evaluate(_ELEMENTS)))
        assert elements[1] - elements[0] == elements[0] - elements[1] == Counter(), view
        assert "alert(1)" in shown
        _expect_clean(tab)
    for view in ("#/runs", f"#/run/{_NAMES[0]}", f"#/trajectories?run={_NAMES[0]}&columns=agents,task,worker,engines"):
        tab.open(view)
        _expect_clean(tab)
    assert dialogs == []
    assert tab.errors == []


def test_sixty_hostile_addresses_stay_text(tab):  # noqa: F811 - the fixture imported above
    dialogs = []
    tab.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    tab.page.add_init_script(_WATCH)
    tab.open("#/fleet")

    assert tab.page.evaluate(_WALK, [*HOSTILE, *_NAMES]) == []
    _expect_clean(tab)
    assert tab.page.evaluate("document.querySelectorAll('main img, main script, main iframe, main svg *').length") == 0
    assert dialogs == []
    assert tab.errors == []


def _expect_clean(tab):  # noqa: F811
    """Nothing ran, nothing was asked of another host, and no attribute came from a string."""
    assert tab.page.evaluate("'owned' in window || 'owned' in {}") is False
    assert tab.page.evaluate("window.broken") == []
    assert tab.page.evaluate(_ATTRIBUTES) == []
    assert tab.page.title().endswith(" · agent-layer")
    assert tab.hosts == {tab.address.split("/")[2]}


def _store(store, group, run, texts):
    """Store an attempt with a step for each text, which is prompt, answer, tool, argument, output, agent and error."""
    name = f"{group}.0-0"
    pieces = [text.encode() for text in texts]
    vocabulary = Vocabulary(
        tokenizer_hash=group, sizes=TokenIds([len(one) for one in pieces]), content=b"".join(pieces)
    )
    store_vocabulary(store.keys, store.objects, vocabulary)
    records = []
    for number, text in enumerate(texts):
        said = content(name, msgspec.json.encode({"role": "user", "name": text, "content": text}))
        tool = {"id": "c", "type": "function", "function": {"name": text, "arguments": text}}
        answer = {"role": "assistant", "content": text, "reasoning": text, "tool_calls": [tool]}
        action = Action(message=answer, response_token_ids=TokenIds([number]), finish_reason=text)
        fields = {"run": run, "agent": text, "model": text, "engine": text, "error": text}
        records += [
            said,
            *call(
                name,
                str(number),
                action,
                at=2.0 + number,
                prompt=PromptDelta(delta=TokenIds([number])),
                state=StepState(messages=[said.hash]),
                tokenizer_hash=group,
                capture_level="tokens",
                **fields,
            ),
            Observation(
                trajectory_id=name,
                run=run,
                observation_id=str(number),
                call_id=f"{name}/{number}",
                name=text,
                at=2.5 + number,
                arguments=text,
                output=f"{text} was seen",
                status="ok",
            ),
            Reward(
                trajectory_id=name, run=run, reward_id=str(number), at=90.0, name=f"n{number}", score=0.0, comment=text
            ),
        ]
    task = Task(id=run, run=run, input="\n".join(texts), labels={text: text for text in texts})
    started = {"task": task, "task_id": run, "task_type": texts[0], "worker": texts[10], "labels": task.labels}
    write_segment(
        store,
        *attempt(name, *records, run=run, group_id=group, **started),
        closed_group(group, name, run=run, task_id=run, num_launched=1, group_size=1),
    )
