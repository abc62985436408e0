"""A turn of the Anthropic messages API: `tool_use` blocks become `tool_result` blocks of one user message."""

from __future__ import annotations

from typing import Any

from sortie_client import Client, is_error, model_text


def answer(client: Client, message: dict[str, Any], run_id: str, step: str) -> dict[str, Any]:
    """`message` is the assistant's message as a dict; what is returned goes after it into `messages`."""
    results = []
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    for index, call in enumerate(calls):
        outcome = client.call(
            call["name"],
            call["input"],
            run_id=run_id,
            step=step,
            call_index=index,
            model_call_id=call["id"],
        )
        results.append(
            {
                "type": "tool_result",
                "tool_use_id": call["id"],
                "content": model_text(outcome),
                "is_error": is_error(outcome),
            }
        )
    return {"role": "user", "content": results}
