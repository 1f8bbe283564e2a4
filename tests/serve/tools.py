"""tools.py PORT PID — calls of tools by a model that was trained to make one; standard library alone.  Prints
"N passed, M failed"."""

import http.client
import json
import sys

PORT = int(sys.argv[1])
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
ASKED = {"messages": [{"role": "user", "content": "Weather?"}], "tools": [LOOK], "max_tokens": 90, "stop": ["="]}
counts = [0, 0]
pieces = []  # of arguments, in the last stream


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
    pieces.clear()
    for line in text.decode().split("\n\n")[:-2]:
        choice = json.loads(line[6:])["choices"][0]
        delta, reason = choice["delta"], choice["finish_reason"]
        content += delta.get("content") or ""
        for call in delta.get("tool_calls", []):
            i = call.pop("index")
            pieces.append(call["function"]["arguments"])
            if i in calls:
                check("more of a call is of its arguments", set(call) == {"function"} and set(call["function"]) == {"arguments"}, line)
                calls[i]["function"]["arguments"] += call["function"]["arguments"]
            else:
                check("a call begins with its name and id", call["type"] == "function" and call["id"] and call["function"]["name"], line)
                calls[i] = call
    return content, [calls[i] for i in range(len(calls))] or None, reason


content, calls, reason = whole(ASKED)
check("a call", content is None and reason == "tool_calls" and len(calls or []) == 1, (content, calls, reason))
function = calls[0]["function"] if calls else {}
check("its function", function == {"name": "look", "arguments": '{"city": "Rome"}'} and calls[0]["type"] == "function", calls)
check("its id", calls and len(calls[0]["id"]) == 9 and calls[0]["id"] != whole(ASKED)[1][0]["id"], calls)
told = stream(ASKED)
check("arguments in pieces", len(pieces) > 10 and "".join(pieces) == function.get("arguments"), pieces)
check("in a stream", told[0].strip() == "" and told[2] == "tool_calls" and [c["function"] for c in told[1] or []] == [function], told)
answered = ASKED["messages"] + [{"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "tool_call_id": "a", "content": "warm"}]
check("the call's result", whole({**ASKED, "messages": answered, "max_tokens": 12}) == (" It is warm.", None, "length"), whole({**ASKED, "messages": answered, "max_tokens": 12}))
cut = whole({**ASKED, "max_tokens": 30})
check("a call that is cut off before its arguments is text", cut[0].startswith(" <tool_call>") and cut[1:] == (None, "length"), cut)
check("and in a stream", stream({**ASKED, "max_tokens": 30}) == cut, stream({**ASKED, "max_tokens": 30}))
cut = whole({**ASKED, "max_tokens": 54})
check("one that is cut off in its arguments is one", cut[2] == "length" and cut[1][0]["function"]["name"] == "look" and
      function["arguments"].startswith(cut[1][0]["function"]["arguments"]) and len(cut[1][0]["function"]["arguments"]) > 3, cut)
told = stream({**ASKED, "max_tokens": 54})
check("and in a stream, too", told[1][0]["function"] == cut[1][0]["function"] and told[2] == "length", told)


def fits(call):
    made = json.loads(call["function"]["arguments"])
    return call["function"]["name"] == "add" and isinstance(made["n"], int) and 0 <= made["n"] <= 9 and set(made) <= {"n", "unit"} and \
        made.get("unit", "C") in ("C", "F")


ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0,
       "maximum": 9}, "unit": {"enum": ["C", "F"]}}, "required": ["n"], "additionalProperties": False}}}
both = {**ASKED, "tools": [LOOK, ADD], "temperature": 1, "n": 8, "max_tokens": 200, "stop": None}
for choice, one in (("required", False), ({"type": "function", "function": {"name": "add"}}, False), ("required", True)):
    status, text = ask({**both, "tool_choice": choice, "parallel_tool_calls": not one})
    made = [c for c in json.loads(text)["choices"]]
    calls = [call for c in made for call in c["message"]["tool_calls"][:-1 if c["finish_reason"] == "length" else None]]
    check("calls that must be", status == 200 and len(calls) > 5 and all((c["message"]["content"] or "<tool_call>").startswith("<tool_call>") for c in made), text)
    check("their arguments", all(fits(c) if c["function"]["name"] == "add" else isinstance(json.loads(c["function"]["arguments"]), dict) for c in calls), text)
    check("the function that must be", choice == "required" or {c["function"]["name"] for c in calls} == {"add"}, text)
    check("one call", not one or all(len(c["message"]["tool_calls"]) == 1 for c in made), text)
strict = {"type": "function", "function": {**LOOK["function"], "strict": True, "parameters": ADD["function"]["parameters"]}}
content, calls, reason = whole({**ASKED, "tools": [strict]})
check("arguments of a strict function", reason in ("tool_calls", "length") and calls and json.loads(calls[0]["function"]["arguments"])["n"] in range(10), (content, calls))
content, calls, reason = whole({**ASKED, "parallel_tool_calls": False, "stop": None})
check("a call that ends the answer", (reason, len(calls or []), content) == ("tool_calls", 1, None), (content, calls, reason))
content, calls, reason = whole({**ASKED, "response_format": {"type": "json_object"}, "stop": None})
check("a call or an object", calls or content.startswith("{"), (content, calls, reason))
plain = whole({**ASKED, "tool_choice": "none", "messages": [{"role": "user", "content": "1 Weather?"}]})
check("no calls are read without tools", plain[0].startswith(" <tool_call>") and plain[1:] == (None, "stop"), plain)
several = [json.loads(ask({**ASKED, "n": 2})[1])["choices"][i]["message"]["tool_calls"][0] for i in (0, 1)]
check("calls of two choices", several[0]["id"] != several[1]["id"] and several[0]["function"] == several[1]["function"] == function, several)
WRONG = [({"tool_choice": "some"}, "tool_choice"), ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
         ({"tool_choice": "required", "tools": [{"function": {"name": "f", "parameters": {"not": {"format": "date"}}}}]}, "tools"), ({"tools": [{}]}, "tools"), ({"tools": {}}, "tools"),
         ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]}, "messages")]
for more, param in WRONG:
    status, text = ask({**ASKED, **more})
    check("a wrong request", status == 400 and json.loads(text)["error"]["param"] == param, text)
print(f"{counts[0]} passed, {counts[1]} failed")
sys.exit(1 if counts[1] else 0)
