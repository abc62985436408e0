"""A turn of the OpenAI responses API: items of type `function_call` become items of type `function_call_output`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sortie_client import Client, model_text


def tools(client: Client) -> list[dict[str, Any]]:
    """The responses API wants a function's fields beside its type, and not within `function`.

    It makes a function strict unless it is told otherwise, and strict takes only a part of JSON Schema.
    """
    return [{"type": "function", "strict": False, **tool["function"]} for tool in client.tools("openai")]


def answer(
    client: Client, output: Iterable[dict[str, Any]], run_id: str, step: str
) -> list[dict[str, Any]]:
    """`output` is `response.output` as dicts; what is returned is the next request's `input`."""
    items = []
    calls = [item for item in output if item["type"] == "function_call"]
    for index, call in enumerate(calls):
        outcome = client.call(
            call["name"],
            call["arguments"],  # the model's text, as it is
            run_id=run_id,
            step=step,
            call_index=index,
            model_call_id=call["call_id"],
        )
        items.append(
            {"type": "function_call_output", "call_id": call["call_id"], "output": model_text(outcome)}
        )
    return items
