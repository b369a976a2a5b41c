// Anthropic's tool runner, which lets the server remember the conversation. Whole, then streamed.

import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { z } from "zod";

const add = betaZodTool({
  name: "add",
  description: "Add two numbers.",
  inputSchema: z.object({ a: z.number(), b: z.number() }),
  run: ({ a, b }) => String(a + b),
});

for (const stream of [false, true]) {
  const runner = new Anthropic().beta.messages.toolRunner({
    model: "claude-any",
    max_tokens: 100,
    system: "Use your tools.",
    messages: [{ role: "user", content: "what is 40 + 2" }],
    tools: [add],
    stream,
  });
  const answer = await runner.runUntilDone();
  console.log(answer.content.at(-1).text);
}
