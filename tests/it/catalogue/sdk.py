"""Reads an export with the types of the provider's own package, and makes a model's call of each tool with them.

Usage: sdk.py PROVIDER EXPORT.json < ARGUMENTS.json > CALLS.json
"""

import json
import re
import sys
import warnings

warnings.simplefilter("error", UserWarning)


def openai(export):
    from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageFunctionToolCall
    from pydantic import TypeAdapter

    adapter = TypeAdapter(list[ChatCompletionFunctionToolParam])
    assert adapter.validate_python(export) == export, "something is not known"
    for tool in export:
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", tool["function"]["name"])

    def call(name, arguments):
        function = {"name": name, "arguments": json.dumps(arguments)}
        read = ChatCompletionMessageFunctionToolCall(id="call_1", type="function", function=function)
        return read.function.name, json.loads(read.function.arguments)

    return [tool["function"] for tool in export], call


def anthropic(export):
    from anthropic.types import ToolParam, ToolUseBlock
    from pydantic import TypeAdapter

    adapter = TypeAdapter(list[ToolParam])
    read = adapter.validate_python(export)
    # `required` is read as any sequence.
    assert json.loads(adapter.dump_json(read)) == export, "something is not known"
    for tool in export:
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", tool["name"])
        assert tool["input_schema"]["type"] == "object"

    def call(name, arguments):
        read = ToolUseBlock(id="toolu_1", type="tool_use", name=name, input=arguments)
        return read.name, read.input

    return export, call


def gemini(export):
    from google.genai.types import FunctionCall, Tool

    read = Tool.model_validate(export)
    assert len(read.function_declarations) == len(export["functionDeclarations"])
    for tool in read.function_declarations:
        assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_.-]{0,63}", tool.name)

    def call(name, arguments):
        read = FunctionCall(name=name, args=arguments)
        return read.name, read.args

    return export["functionDeclarations"], call


def mcp(export):
    from mcp_types import CallToolRequestParams, ListToolsResult

    read = ListToolsResult.model_validate(export)
    again = read.model_dump(by_alias=True, exclude_unset=True, mode="json")
    assert again["tools"] == export["tools"], "something is not known"
    for tool in read.tools:
        assert re.fullmatch("[A-Za-z0-9_.-]{1,128}", tool.name)
        assert tool.input_schema["type"] == "object"

    def call(name, arguments):
        read = CallToolRequestParams(name=name, arguments=arguments)
        return read.name, read.arguments

    return export["tools"], call


provider, path = sys.argv[1:]
with open(path, encoding="utf-8") as file:
    tools, call = globals()[provider](json.load(file))
arguments = json.load(sys.stdin)
calls = [call(tool["name"], arguments[tool["name"]]) for tool in tools]
print(json.dumps([{"name": name, "arguments": given} for name, given in calls]))
