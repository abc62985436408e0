"""Leads schemathesis to what is there, and takes down what it was answered.

Random names would only ever meet "there is no such tool". A request that is meant to be good is turned to tools, calls,
approvals and policies that exist; one that is meant to be wrong is left as it is.
"""

import json
import os
import urllib.request
import zlib

import schemathesis

KNOWN = json.loads(os.environ["OPENAPI_KNOWN"])
SEEN = os.environ["OPENAPI_SEEN"]


def choose(case, of):
    """One of them, the same for the same request."""
    said = repr((case.operation.label, case.path_parameters, case.query, case.body))
    return of[zlib.crc32(said.encode(errors="replace")) % len(of)]


def pending():
    request = urllib.request.Request(KNOWN["url"] + "/v1/approvals?status=pending")
    request.add_header("Authorization", KNOWN["authorization"])
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)["data"]


def lead_call(case, call):
    """A call of a tool that is there, by an agent that is listed, which does not wait long."""
    name = choose(case, KNOWN["tools"])
    call["tool"] = name
    call["agent_id"] = choose(case, [None, KNOWN["agent"]])
    call["round"] = min(call.get("round") or 1, 3)
    call["wait_ms"] = min(call.get("wait_ms") or 1000, 1000)
    call["deadline_ms"] = max(call.get("deadline_ms") or 5000, 5000)
    if call.get("credentials"):
        call["credentials"] = {KNOWN["credential"]: "abc"} if name == KNOWN["takes_credential"] else None


def lead(case):
    path, body = case.operation.path, case.body
    if isinstance(body, dict) and "tool" in body:
        lead_call(case, body)
    elif isinstance(body, dict) and isinstance(body.get("calls"), list):
        for call in body["calls"]:
            lead_call(case, call)
    if case.query and "format" in case.query:
        # All come at once.
        case.query.pop("limit", None)
        case.query.pop("cursor", None)
    if case.meta.phase.name.value == "stateful":
        # It goes on from an earlier answer, whose ids it has.
        return
    if path.startswith("/v1/calls/{id}"):
        case.path_parameters["id"] = choose(case, KNOWN["calls"])
    elif path.startswith("/v1/approvals/{id}"):
        found = pending()
        if found:
            one = choose(case, found)
            case.path_parameters["id"] = one["id"]
            if isinstance(body, dict):
                body["arguments_digest"] = one["arguments_digest"]
    elif "{tool}" in path:
        case.path_parameters["tool"] = choose(case, KNOWN["tools"])
    elif "{agent}" in path:
        case.path_parameters["agent"] = KNOWN["agent"]


def whole(value):
    """The same with whole numbers as they have to be written: to JSON Schema 7.0 is one too."""
    if isinstance(value, dict):
        return {name: whole(one) for name, one in value.items()}
    if isinstance(value, list):
        return [whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is not None and case.meta.generation.mode.is_positive:
        # A body that is set anew is looked at anew, also where there is none.
        if isinstance(case.body, (dict, list)):
            case.body = whole(case.body)
        lead(case)


@schemathesis.hook
def after_call(context, case, response):
    with open(SEEN, "a", encoding="utf-8") as seen:
        seen.write(f"{case.operation.label} {response.status_code}\n")
