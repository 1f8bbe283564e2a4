"""tools.py PORT PID — calls of tools by a model that was trained to make one; standard library alone.  Prints
"N passed, M failed"."""

import http.client
import json
import sys

PORT = int(sys.argv[1])
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
ASKED = {"messages": [{"role": "user", "content": "Weather?"}], "tools": [LOOK], "max_tokens": 90, "stop": ["="]}
counts = [0, 0]


def check(name, holds, shown=""):
    counts[0 if holds else 1] += 1
    if not holds:
        print(f"FAIL {name} {shown}", flush=True)


def ask(request):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(request), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, text


def whole(request):
    status, text = ask(request)
    assert status == 200, text
    choice = json.loads(text)["choices"][0]
    message = choice["message"]
    return message["content"], message.get("tool_calls"), choice["finish_reason"]


def stream(request):
    """The same, put together as OpenAI's clients do it."""
    status, text = ask({**request, "stream": True})
    assert status == 200, text
    content, calls, reason = "", {}, None
    for line in text.decode().split("\n\n")[:-2]:
        choice = json.loads(line[6:])["choices"][0]
        delta, reason = choice["delta"], choice["finish_reason"]
        content += delta.get("content") or ""
        for call in delta.get("tool_calls", []):
            check("a call comes once", call["index"] not in calls, line)
            calls[call.pop("index")] = call
    return content, [calls[i] for i in range(len(calls))] or None, reason


content, calls, reason = whole(ASKED)
check("a call", content is None and reason == "tool_calls" and len(calls or []) == 1, (content, calls, reason))
function = calls[0]["function"] if calls else {}
check("its function", function == {"name": "look", "arguments": '{"city": "Rome"}'} and calls[0]["type"] == "function", calls)
check("its id", calls and len(calls[0]["id"]) == 9 and calls[0]["id"] != whole(ASKED)[1][0]["id"], calls)
told = stream(ASKED)
check("in a stream", told[0].strip() == "" and told[2] == "tool_calls" and [c["function"] for c in told[1] or []] == [function], told)
answered = ASKED["messages"] + [{"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "tool_call_id": "a", "content": "warm"}]
check("the call's result", whole({**ASKED, "messages": answered, "max_tokens": 12}) == (" It is warm.", None, "length"), whole({**ASKED, "messages": answered, "max_tokens": 12}))
cut = whole({**ASKED, "max_tokens": 40})
check("a call that is cut off is text", cut[0].startswith(" <tool_call>") and cut[1:] == (None, "length"), cut)
check("and in a stream", stream({**ASKED, "max_tokens": 40}) == cut, stream({**ASKED, "max_tokens": 40}))
plain = whole({**ASKED, "tool_choice": "none", "messages": [{"role": "user", "content": "1 Weather?"}]})
check("no calls are read without tools", plain[0].startswith(" <tool_call>") and plain[1:] == (None, "stop"), plain)
several = [json.loads(ask({**ASKED, "n": 2})[1])["choices"][i]["message"]["tool_calls"][0] for i in (0, 1)]
check("calls of two choices", several[0]["id"] != several[1]["id"] and several[0]["function"] == several[1]["function"] == function, several)
WRONG = [({"tool_choice": "required"}, "tool_choice"), ({"tools": [{}]}, "tools"), ({"tools": {}}, "tools"),
         ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]}, "messages")]
for more, param in WRONG:
    status, text = ask({**ASKED, **more})
    check("a wrong request", status == 400 and json.loads(text)["error"]["param"] == param, text)
print(f"{counts[0]} passed, {counts[1]} failed")
sys.exit(1 if counts[1] else 0)
