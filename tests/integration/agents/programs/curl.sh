#!/bin/sh
# A plain script: one question, its answer kept, one more question.
set -e
ask() {
    curl --silent --show-error --fail "$OPENAI_BASE_URL/chat/completions" \
        -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" \
        -d "{\"model\": \"gpt-any\", \"messages\": [$1]}"
}
first='{"role": "user", "content": "one"}'
said=$(ask "$first" | sed 's/.*"content": *"\([^"]*\)".*/\1/')
ask "$first, {\"role\": \"assistant\", \"content\": \"$said\"}, {\"role\": \"user\", \"content\": \"two\"}"
