"""A turn of the OpenAI chat completions API: the calls of the model's message become messages of role `tool`."""

from __future__ import annotations

from typing import Any

from sortie_client import Client, model_text


def answer(client: Client, message: dict[str, Any], run_id: str, step: str) -> list[dict[str, Any]]:
    """`message` is `completion.choices[0].message` as a dict; what is returned goes after it into `messages`."""
    replies = []
    for index, call in enumerate(message.get("tool_calls") or []):
        outcome = client.call(
            call["function"]["name"],
            call["function"]["arguments"],  # the model's text, as it is
            run_id=run_id,
            step=step,
            call_index=index,
            model_call_id=call["id"],
        )
        replies.append({"role": "tool", "tool_call_id": call["id"], "content": model_text(outcome)})
    return replies
