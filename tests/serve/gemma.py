"""gemma.py PORT PID — a template with a format of calls that is no JSON, and with what the assistant says in two pieces; standard
library alone.  Prints "N passed, M failed"."""

import http.client
import json
import sys

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "n": {"type": "integer"}, "is": {"enum": [True, None, "it's"]}},
              "required": ["city", "n", "is"], "additionalProperties": False}
LOOK = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}
ASKED = {"messages": [{"role": "user", "content": "Weather?"}], "tools": [LOOK], "max_tokens": 100, "temperature": 1, "seed": 5, "n": 4}
counts = [0, 0]


def fits(call):
    made = json.loads(call["function"]["arguments"])
    return call["function"]["name"] == "look" and list(made) == ["city", "n", "is"] and len(made["city"]) <= 8 and isinstance(made["n"], int) and \
        made["is"] in (True, None, "it's")


def check(name, request, is_call=None):
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps({**ASKED, **request}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    status, answer = response.status, json.loads(response.read())
    connection.close()
    calls = [c["message"].get("tool_calls") for c in answer.get("choices", [])]
    holds = status == 200 and (is_call is None or all(bool(c) == is_call and all(map(fits, c or [])) for c in calls))
    counts[0 if holds else 1] += 1
    if not holds:
        print(f"FAIL {name} {status} {answer}", flush=True)


one = {"parallel_tool_calls": False}
check("calls that must be", {"tool_choice": "required", **one}, True)
check("the function that must be", {"tool_choice": {"type": "function", "function": {"name": "look"}}, **one}, True)
check("a strict function", {"tools": [{**LOOK, "function": {**LOOK["function"], "strict": True}}]})
check("JSON, or calls", {"response_format": {"type": "json_object"}, "max_tokens": 20})
check("JSON alone", {"response_format": {"type": "json_object"}, "tool_choice": "none"}, False)
check("a message in two pieces", {"messages": [*ASKED["messages"], {"role": "assistant", "content": "So", "tool_calls": [{"function": {"name": "look"}}]},
                                               {"role": "tool", "content": "warm"}]})
print(f"{counts[0]} passed, {counts[1]} failed")
sys.exit(1 if counts[1] else 0)
