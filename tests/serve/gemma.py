"""gemma.py PORT PID — a template with a format of calls that is only read, and with what the assistant says in two pieces; standard
library alone.  Prints "N passed, M failed"."""

import http.client
import json
import sys

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
ASKED = {"messages": [{"role": "user", "content": "Weather?"}], "tools": [LOOK], "max_tokens": 4}
REFUSED = "tools: answers cannot be held to calls in the format gemma4 (tool_choice, strict, response_format)"
counts = [0, 0]


def check(name, request, wanted, message=None):
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps({**ASKED, **request}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    status, answer = response.status, json.loads(response.read())
    connection.close()
    holds = status == wanted and (message is None or (answer["error"]["message"], answer["error"]["param"]) == (message, "tools"))
    counts[0 if holds else 1] += 1
    if not holds:
        print(f"FAIL {name} {status} {answer}", flush=True)


check("calls that must be", {"tool_choice": "required"}, 400, REFUSED)
check("a strict function", {"tools": [{**LOOK, "function": {**LOOK["function"], "strict": True}}]}, 400, REFUSED)
check("JSON, or calls", {"response_format": {"type": "json_object"}}, 400, REFUSED)
check("JSON alone", {"response_format": {"type": "json_object"}, "tool_choice": "none"}, 200)
check("one call at most", {"parallel_tool_calls": False}, 200)
check("a message in two pieces", {"messages": [*ASKED["messages"], {"role": "assistant", "content": "So", "tool_calls": [{"function": {"name": "look"}}]},
                                               {"role": "tool", "content": "warm"}]}, 200)
print(f"{counts[0]} passed, {counts[1]} failed")
sys.exit(1 if counts[1] else 0)
