"""Two methods of an MCP server: `tools/list` and `tools/call`, answered by the gateway."""

from __future__ import annotations

from typing import Any

from sortie_client import Client, is_error, model_text


def handle(client: Client, request: dict[str, Any], run_id: str, step: str) -> dict[str, Any]:
    """`request` is a JSON-RPC request; what is returned is its response."""
    if request["method"] == "tools/list":
        result: dict[str, Any] = client.tools("mcp")
    else:
        params = request["params"]
        outcome = client.call(
            params["name"], params.get("arguments") or {}, run_id=run_id, step=step
        )
        result = {
            "content": [{"type": "text", "text": model_text(outcome)}],
            "isError": is_error(outcome),
        }
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}
