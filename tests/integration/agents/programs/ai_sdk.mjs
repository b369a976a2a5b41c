// The AI SDK over OpenAI's responses, its default; it names earlier items by id. Whole, then streamed.

import { openai } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const add = tool({
  description: "Add two numbers.",
  inputSchema: z.object({ a: z.number(), b: z.number() }),
  execute: ({ a, b }) => a + b,
});

const asked = {
  model: openai("gpt-any"),
  system: "Use your tools.",
  prompt: "what is 40 + 2",
  tools: { add },
  stopWhen: stepCountIs(5),
};
for (const ask of [generateText, streamText]) {
  const answer = await ask(asked);
  console.log(await answer.text);
}
