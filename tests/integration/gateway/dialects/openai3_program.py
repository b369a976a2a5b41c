"""Program for openai 3: it asks in every style and writes the answers as JSON.

Arguments: base_url, api_key.
"""

import json
import sys

import openai

HELLO = [{"role": "user", "content": "hi"}]


def ask_all(client):
    """Yield the answer's text for each style of request."""
    fields = {"model": "m", "messages": HELLO}
    yield client.chat.completions.create(**fields).choices[0].message.content
    chunks = client.chat.completions.create(**fields, stream=True)
    yield "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    with client.chat.completions.stream(**fields) as stream:
        yield stream.get_final_completion().choices[0].message.content
    yield client.responses.create(model="m", input="hi").output_text
    with client.responses.stream(model="m", input="hi") as stream:
        yield stream.get_final_response().output_text


def main(base_url, api_key):
    """Write version, texts, and the error of a wrong key."""
    with openai.OpenAI(base_url=base_url, api_key=api_key) as client:
        texts = list(ask_all(client))
        try:
            client.with_options(api_key="wrong").responses.create(model="m", input="hi")
        except openai.AuthenticationError as error:
            refused = error.message
    json.dump({"version": openai.__version__, "texts": texts, "refused": refused}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
