"""reasoning.py PORT PID — answers of a model that was trained to reason and then to make a call; standard library alone.  Prints
"N passed, M failed"."""

import http.client
import json
import sys

PORT = int(sys.argv[1])
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}}}
ASKED = {"messages": [{"role": "user", "content": "1 Weather?"}], "max_tokens": 110, "stop": ["="]}
TOOLS = {**ASKED, "messages": [{"role": "user", "content": "Weather?"}], "tools": [LOOK]}
CALL = {"name": "look", "arguments": '{"city": "Rome"}'}
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
    """Reasoning, content, functions and the reason of the end."""
    status, text = ask(request)
    assert status == 200, text
    choice = json.loads(text)["choices"][0]
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls", [])]
    return message.get("reasoning_content"), message["content"], calls, choice["finish_reason"]


def stream(request):
    status, text = ask({**request, "stream": True})
    assert status == 200, text
    reasoning, content, calls, pieces = "", "", {}, 0
    for line in text.decode().split("\n\n")[:-2]:
        choice = json.loads(line[6:])["choices"][0]
        delta = choice["delta"]
        check("reasoning comes first", not ("reasoning_content" in delta and (content.strip() or calls)), line)
        pieces += "reasoning_content" in delta
        reasoning += delta.get("reasoning_content") or ""
        content += delta.get("content") or ""
        for call in delta.get("tool_calls", []):
            one = calls.setdefault(call["index"], {"name": call["function"].get("name"), "arguments": ""})
            one["arguments"] += call["function"]["arguments"]
    return reasoning or None, content or None, [calls[i] for i in sorted(calls)], choice["finish_reason"], pieces


said = whole(ASKED)
check("reasoning and text", said[0] == "let us see" and said[1].startswith("<tool_call>") and said[2:] == ([], "stop"), said)
told = stream(ASKED)
check("in a stream", told[:4] == said and told[4] > 5, told)
said = whole(TOOLS)
check("reasoning and a call", said == ("let us see", None, [CALL], "tool_calls"), said)
told = stream(TOOLS)
check("in a stream", told[:4] == said and told[4] > 5, told)
cut = whole({**TOOLS, "max_tokens": 6})
check("reasoning that is cut off", cut[0] and "let us see".startswith(cut[0]) and cut[1:] == ("", [], "length"), cut)
off = {"chat_template_kwargs": {"enable_thinking": False}}
check("none if it is switched off", whole({**TOOLS, **off})[0] is None, whole({**TOOLS, **off}))

need = {"tool_choice": "required", "stop": None, "parallel_tool_calls": False}
said = whole({**TOOLS, **need})
check("reasoning before a call that must be", said == ("let us see", None, [CALL], "tool_calls"), said)
said = whole({**TOOLS, **need, **off})
check("no reasoning before it", said[0] is None and len(said[2]) == 1 and json.loads(said[2][0]["arguments"])["city"] in ("Rome", "Oslo"), said)
form = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}}}}
said = whole({**ASKED, **form})
check("reasoning before JSON", said[0] == "let us see" and json.loads(said[1])["n"] in (1, 2) and said[3] == "stop", said)
told = stream({**ASKED, **form})
check("in a stream", told[:4] == said, told)
said = whole({**ASKED, **form, **off})
check("no reasoning before it", said[0] is None and json.loads(said[1])["n"] in (1, 2), said)

answered = [*TOOLS["messages"], {"role": "assistant", "content": None, "reasoning_content": "let us see", "tool_calls": [{"function": CALL}]}, {"role": "tool", "content": "=warm"}]
check("a message with reasoning is taken", ask({**TOOLS, "messages": answered})[0] == 200, ask({**TOOLS, "messages": answered}))
WRONG = [({"chat_template_kwargs": {"thinking": False}}, 'chat_template_kwargs: the chat template does not read "thinking"'),
         ({"chat_template_kwargs": {"tools": []}}, 'chat_template_kwargs: found "tools", which is no variable of its own'),
         ({"chat_template_kwargs": []}, "chat_template_kwargs: found [], wanted an object of variables"),
         ({"reasoning_effort": "low"}, 'reasoning_effort: the chat template does not read "reasoning_effort"')]
for more, message in WRONG:
    status, text = ask({**ASKED, **more})
    check("a wrong request", status == 400 and json.loads(text)["error"]["message"] == message and json.loads(text)["error"]["param"] in more, text)
print(f"{counts[0]} passed, {counts[1]} failed")
sys.exit(1 if counts[1] else 0)
