"""A turn of the Gemini API: `functionCall` parts become `functionResponse` parts of one user content."""

from __future__ import annotations

from typing import Any

from sortie_client import Client, is_error, model_text


def answer(client: Client, content: dict[str, Any], run_id: str, step: str) -> dict[str, Any]:
    """`content` is `candidates[0].content` as JSON; what is returned goes after it into `contents`."""
    parts = []
    calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
    for index, call in enumerate(calls):
        outcome = client.call(
            call["name"],
            call.get("args") or {},
            run_id=run_id,
            step=step,
            call_index=index,
            model_call_id=call.get("id"),
        )
        key = "error" if is_error(outcome) else "output"
        response = {"name": call["name"], "response": {key: model_text(outcome)}}
        if "id" in call:
            response["id"] = call["id"]
        parts.append({"functionResponse": response})
    return {"role": "user", "parts": parts}
