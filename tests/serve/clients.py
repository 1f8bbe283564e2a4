"""clients.py PORT PID — many clients at once, and requests that are wrong, against a server that answers
with a small model of bytes; standard library alone.  Prints "N passed, M failed"."""

import http.client
import json
import os
import random
import signal
import socket
import sys
import threading
import time

PORT, PID = int(sys.argv[1]), int(sys.argv[2])
CLIENTS = 64
counts = [0, 0]
lock = threading.Lock()


def check(name, holds, shown=""):
    with lock:
        counts[0 if holds else 1] += 1
    if not holds:
        print(f"FAIL {name} {shown}", flush=True)


def ask(path, body, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, text


def events(text):
    lines = [line for line in text.decode().split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]", text
    return [json.loads(line[6:]) for line in lines[:-1]]


def answer(request):
    """Text, reason to end, and tokens of a request's answer, whichever way it comes."""
    is_chat = "messages" in request
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    status, text = ask(path, json.dumps(request))
    assert status == 200, text
    if not request.get("stream"):
        made = json.loads(text)
        choice = made["choices"][0]
        said = choice["message"]["content"] if is_chat else choice["text"]
        return said, choice["finish_reason"], made["usage"]["completion_tokens"]
    parts = events(text)
    choices = [part["choices"][0] for part in parts if part["choices"]]
    said = "".join(c["delta"].get("content", "") if is_chat else c["text"] for c in choices)
    return said, choices[-1]["finish_reason"], parts[-1]["usage"]["completion_tokens"]


def requests():
    start = ["the cat", "the dog sat on", "the cow sat on the", "a", "the mat. the row. the log. " * 5]
    made = []
    for i in range(20):
        request = {"max_tokens": 5 + 3 * (i % 7), "stream": False}
        if i % 3 == 2:
            request["messages"] = [{"role": "user", "content": start[i % 5]}]
        else:
            request["prompt"] = start[i % 5]
        if i % 4 == 1:
            request.update(temperature=0.9, seed=i, top_p=0.95)
        if i % 5 == 3:
            request["stop"] = [" on"]
        made.append(request)
    return made


def as_stream(request):
    return {**request, "stream": True, "stream_options": {"include_usage": True}}


def client(number, asked, alone):
    order = random.Random(number)
    for _ in range(4):
        i = order.randrange(len(asked))
        request = as_stream(asked[i]) if order.random() < 0.5 else asked[i]
        try:
            got = answer(request)
            check("an answer is the one that a request gets alone", got == alone[i], f"{got} {alone[i]}")
        except Exception as error:
            check(f"an answer: {error!r}", False)


def many_clients():
    asked = requests()
    alone = [answer(request) for request in asked]
    for request, wanted in zip(asked, alone):
        check("a stream says the same", answer(as_stream(request)) == wanted)
    threads = [threading.Thread(target=client, args=(n, asked, alone)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def logprobs():
    """A stream tells the same tokens as an answer, and the likeliest of a greedy answer are its own."""
    chat = {"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 12, "logprobs": True, "top_logprobs": 3}
    whole = json.loads(ask("/v1/chat/completions", json.dumps(chat))[1])["choices"][0]["logprobs"]["content"]
    check("likeliest tokens of a conversation", all(t["top_logprobs"][0]["logprob"] == t["logprob"] and t["top_logprobs"][0]["token"] == t["token"] and len(t["top_logprobs"]) == 3 for t in whole), whole)
    check("their order", all(t["top_logprobs"][i]["logprob"] >= t["top_logprobs"][i + 1]["logprob"] for t in whole for i in (0, 1)), whole)
    parts = [p["choices"][0] for p in events(ask("/v1/chat/completions", json.dumps(as_stream(chat)))[1]) if p["choices"]]
    told = [t for c in parts if c["logprobs"] for t in c["logprobs"]["content"]]
    check("tokens of a stream of a conversation", told == whole, told)
    one = {"prompt": "the dog", "max_tokens": 12, "logprobs": 2, "temperature": 1, "seed": 4}
    whole = json.loads(ask("/v1/completions", json.dumps(one))[1])["choices"][0]["logprobs"]
    lists = list(zip(whole["tokens"], whole["token_logprobs"], whole["top_logprobs"]))
    check("likeliest tokens", len(lists) == 12 and all(top[token] == p and 2 <= len(top) <= 3 for token, p, top in lists), lists)
    parts = [p["choices"][0] for p in events(ask("/v1/completions", json.dumps(as_stream(one)))[1]) if p["choices"]]
    told = [t for c in parts if c["logprobs"] for t in zip(*(c["logprobs"][k] for k in ("tokens", "token_logprobs", "top_logprobs")))]
    check("tokens of a stream", told == lists, told)


def choices(request):
    """Of a request, by index: texts, reasons to end and tokens with their log-probabilities; and its usage."""
    is_chat = "messages" in request
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    status, text = ask(path, json.dumps(request))
    assert status == 200, text
    parts = events(text) if request.get("stream") else [json.loads(text)]
    said = {}
    for part in parts:
        for c in part["choices"]:
            old = said.setdefault(c["index"], ["", None, []])
            old[0] += (c.get("message") or c.get("delta")).get("content", "") if is_chat else c["text"]
            old[1] = c["finish_reason"]
            if c["logprobs"]:
                old[2] += zip(c["logprobs"]["tokens"], c["logprobs"]["token_logprobs"], c["logprobs"]["top_logprobs"] or [])
    return [said[i] for i in range(len(said))], parts[-1]["usage"]


def several():
    """Several replies, of several prompts: each as when it is asked for alone, with a stream or without."""
    seeded = {"prompt": "the cat", "temperature": 1.5, "seed": 5, "max_tokens": 12, "n": 6}
    made, usage = choices(seeded)
    check("as many as were asked for", len(made) == 6 and usage == {"prompt_tokens": 7, "completion_tokens": 72, "total_tokens": 79}, usage)
    check("replies of one seed differ", len({m[0] for m in made}) > 3, made)
    check("they are the same again", choices(seeded)[0] == made)
    check("and in a stream", choices(as_stream(seeded)) == (made, usage), choices(as_stream(seeded)))
    check("the first of fewer are the same", choices({**seeded, "n": 2})[0] == made[:2])
    chat = {"messages": [{"role": "user", "content": "the cat"}], "temperature": 1.5, "seed": 5, "max_tokens": 12, "n": 3}
    check("a conversation", choices(as_stream(chat)) == choices(chat) and len(choices(chat)[0]) == 3)
    starts = ["the cat", "the dog sat on", "a"]
    prompts = {"prompt": starts, "temperature": 1.5, "seed": 5, "max_tokens": 12, "n": 2}
    made, usage = choices(prompts)
    alone = [choices({**prompts, "prompt": start}) for start in starts]
    check("prompts together", made == [m for one in alone for m in one[0]], made)
    check("and their usage", usage["total_tokens"] == sum(one[1]["total_tokens"] for one in alone), usage)
    check("more replies than rows", len(choices({"prompt": starts * 10, "max_tokens": 3, "n": 3})[0]) == 90)
    ids = [list(map(ord, start)) for start in starts]
    check("prompts of ids", choices({**prompts, "prompt": ids})[0] == made)
    drawn = {"prompt": "the cat", "temperature": 2, "max_tokens": 6, "n": 2}
    check("without a seed", choices(drawn)[0] != choices(drawn)[0])


def best():
    """Those whose tokens have the highest mean log-probability, in order."""
    asked = {"prompt": "the cat", "temperature": 1.5, "seed": 5, "max_tokens": 12, "logprobs": 0}
    made = [json.loads(ask("/v1/completions", json.dumps({**asked, **more}))[1]) for more in ({"n": 6}, {"n": 2, "best_of": 6})]
    everything, told = ([(sum(c["logprobs"]["token_logprobs"]), c["text"]) for c in m["choices"]] for m in made)
    check("the best of several", told == sorted(everything, key=lambda c: -c[0])[:2], f"{told} {everything}")
    check("and their usage", made[0]["usage"] == made[1]["usage"], made[1]["usage"])


def echo():
    """A prompt's tokens as lm-evaluation-harness asks for them, against replies to what stands before each."""
    text = "the cat sat on the mat. the dog"
    asked = {"prompt": [list(map(ord, text))], "max_tokens": 1, "temperature": 0, "logprobs": 1, "seed": 1234, "echo": True}
    made, usage = choices(asked)
    said, _, tokens = made[0]
    check("an echo", said[:-1] == text and [t[0] for t in tokens] == list(said) and tokens[0][1:] == (None, None), made)
    check("its usage", usage == {"prompt_tokens": 31, "completion_tokens": 1, "total_tokens": 32}, usage)
    for i in range(1, len(text)):
        likeliest = choices({"prompt": list(map(ord, text[:i])), "max_tokens": 1, "logprobs": 20})[0][0][2][0][2]
        token, logprob, top = tokens[i]
        close = lambda a, b: abs(a - b) < 2e-4
        check("the likeliest at a place", close(max(top.values()), max(likeliest.values())) and top[token] == logprob, f"{top} {likeliest}")
        check("a token that was given", token not in likeliest or close(logprob, likeliest[token]), f"{token} {logprob} {likeliest}")
    scored = {**asked, "prompt": text, "max_tokens": 0}
    check("nothing but the prompt", choices(scored)[0] == [[text, "length", tokens[:-1]]], choices(scored))
    check("a stream of it", choices(as_stream(asked)) == (made, usage) and choices(as_stream(scored))[0] == choices(scored)[0])
    both = {"prompt": [text, "a"], "max_tokens": 4, "echo": True, "n": 2}
    check("an echo of each", [m[0].startswith(text) for m in choices(both)[0]] == [True, True, False, False], choices(both))
    check("without tokens of the prompt", choices(both)[1]["completion_tokens"] == 16, choices(both))


def changed_logits():
    """Penalties and biases, as formulas of the model's own log-probabilities say, greedily."""
    asked = {"prompt": "the cat", "max_tokens": 20, "logprobs": 20, "presence_penalty": 0.5, "frequency_penalty": 2, "logit_bias": {"32": -9, "116": 1}}
    said, _, tokens = choices(asked)[0][0]
    for i, (token, _, top) in enumerate(tokens):
        worth = lambda t: top[t] - 2 * said[:i].count(t) - 0.5 * (t in said[:i]) + {" ": -9, "t": 1}.get(t, 0)
        check("the likeliest after all changes", worth(token) >= max(map(worth, top)) - 1e-4, f"{said} {i} {top}")
    check("other tokens than without", said != choices({"prompt": "the cat", "max_tokens": 20})[0][0][0], said)
    banned = {"prompt": "the cat", "max_tokens": 20, "temperature": 1, "logit_bias": {str(ord(c)): -100 for c in "aeo"}}
    check("banned tokens", not set("aeo") & set(choices(banned)[0][0][0]), choices(banned))


def objects():
    """Answers that are JSON objects: whole ones, or what has begun as one; the same ones however they come."""
    likely = {str(ord(c)): b for c, b in (('"', 8), (":", 3), ("}", 6), ("]", 4))}
    asked = {"messages": [{"role": "user", "content": "the cat"}], "response_format": {"type": "json_object"}, "max_tokens": 100,
             "temperature": 1.5, "seed": 3, "n": 24, "logit_bias": likely}
    made, usage = choices(asked)
    ended = [json.loads(said) for said, reason, _ in made if reason == "stop"]
    check("objects", len(ended) > 4 and all(isinstance(one, dict) for one in ended), made)
    check("some with members", any(ended), made)
    check("others have begun", all(said.lstrip().startswith("{") for said, _, _ in made), made)
    check("in a stream", choices(as_stream(asked)) == (made, usage))
    check("nothing follows an object", choices({**asked, "n": 1, "logit_bias": {"125": 100}})[0][0][0].strip() == "{}")
    check("greedily", choices({**asked, "n": 1, "temperature": 0, "logit_bias": {}})[0][0][0].lstrip().startswith("{"))
    text = {**asked, "n": 1, "response_format": {"type": "text"}, "temperature": 0, "logit_bias": {}}
    check("no limits for a text", not choices(text)[0][0][0].startswith("{"))


def schemas():
    """Answers that fit a schema, also where the text could end before it must; a schema that is not available."""
    def asked(schema, **more):
        return {"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 100, "temperature": 1.5, "seed": 3, "n": 12,
                "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}, **more}
    cat = {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]{2,5}$"}, "age": {"type": "integer", "minimum": 3,
           "maximum": 20}, "of": {"enum": ["Rome", "K\u00f6ln", None]}}, "required": ["name", "age", "of"], "additionalProperties": False}
    made, usage = choices(asked(cat))
    cats = [json.loads(said) for said, reason, _ in made if reason == "stop"]
    check("cats", len(cats) > 8 and all(list(c) == ["name", "age", "of"] and 2 <= len(c["name"]) <= 5 and 3 <= c["age"] <= 20 for c in cats), made)
    check("cats of several ages", len({c["age"] for c in cats}) > 2, made)
    check("cats in a stream", choices(as_stream(asked(cat))) == (made, usage))
    check("numbers", all(100 <= int(said) <= 5000 for said, reason, _ in choices(asked({"type": "integer", "minimum": 100, "maximum": 5000}))[0]))
    for schema, place in ({"properties": {"a": {"not": {"format": "date"}}}}, "#/properties/a"), ({"enum": list(range(99999))}, "too large"), (5, "#"):
        status, text = ask("/v1/chat/completions", json.dumps(asked(schema)))
        error = json.loads(text)["error"]
        check("a schema that is not available", status == 400 and place in error["message"] and error["param"] == "response_format", text)


WRONG = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"prompt":"a","prompt":"b"}', b'{"prompt":{}}', b'{"prompt":"a","logit_bias":{"260":1}}', b'{"prompt":[[1],2]}', b'{"prompt":[[1],[]]}', b'{"prompt":["a",[4096]]}',
         b'{"prompt":"a","max_tokens":0}', b'{"prompt":"a","max_tokens":1e99}', b'{"prompt":"a","stop":[""]}',
         b'{"prompt":"a","stream":1}', b'{"prompt":[]}', b'{"prompt":[-1]}', b'{"prompt":[4096]}', b'{"prompt":"a","top_p":0}',
         b'{"prompt":"a","wrong":true}', b'{"prompt":"' + b"a" * 5000 + b'"}', b"[" * 100000, b'{"messages":[]}']


def resident():
    with open(f"/proc/{PID}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wrong_requests():
    for body in WRONG:
        status, text = ask("/v1/completions", body)
        is_told = status == 400 and json.loads(text)["error"]["message"]
        check("a wrong request", is_told, f"{body[:40]} {status} {text[:200]}")
    for method, path, wanted in [("GET", "/v1/completions", 405), ("POST", "/v1/models", 405), ("GET", "/etc/passwd", 404),
                                 ("GET", "/../../etc/passwd", 404), ("POST", "/", 404)]:
        check("a wrong place", ask(path, None, method)[0] == wanted, path)
    chat = {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]}
    status, text = ask("/v1/chat/completions", json.dumps(chat))
    error = json.loads(text)["error"]
    check("a template's error names no folder", status == 400 and "/" not in error["message"] and error["param"] == "messages", text)
    chat = {"messages": [{"role": "user", "content": "a"}], "tools": [{"function": {"name": "f"}}]}
    status, text = ask("/v1/chat/completions", json.dumps(chat))
    check("tools that the template does not take", status == 400 and json.loads(text)["error"]["param"] == "tools", text)
    status, text = ask("/v1/chat/completions", json.dumps({"model": "other", "messages": [{"role": "user", "content": "a"}]}))
    check("another model", status == 404 and json.loads(text)["error"]["code"] == "model_not_found", text)
    check("a body that is too large", ask("/v1/completions", b"x" * (2 << 20))[0] == 413)
    order, before = random.Random(0), 0
    for i in range(1500):
        if i == 500:
            before = resident()
        body = bytearray(json.dumps(order.choice(requests())).encode())
        for _ in range(order.randrange(1, 4)):
            body[order.randrange(len(body))] = order.randrange(256)
        body[:1] = b"<"
        status, text = ask("/v1/completions", bytes(body))
        if status != 400:
            check("damaged requests", False, text)
    check("memory is flat", resident() - before < 4 << 20, resident() - before)


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n"
CHUNK = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}"


def wait_for_end(sent, leaves, byte):
    """Until the server ends the connection of a client that sends, and perhaps closes its side, or sends a byte more each second."""
    client = socket.create_connection(("127.0.0.1", PORT))
    client.sendall(sent)
    if leaves:
        client.shutdown(socket.SHUT_WR)
    client.settimeout(1)
    while True:
        try:
            if not client.recv(4096):
                break
        except TimeoutError:
            try:
                client.sendall(byte)
            except OSError:
                break
        except OSError:
            break
    client.close()


# What was sent, whether the client then closes its side, what it sends each second, and who is cut off first: those that left, those
# that send no whole head, and those that send no whole body.
UNFINISHED = [(b"", True, b"", 0), (b"POST /v1/co", True, b"", 0), (HEAD, True, b"", 0), (HEAD + b"\r\n{}", True, b"", 0), (CHUNK, True, b"", 0),
              (b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", True, b"", 0), (b"", False, b"", 1), (b"POST /v1/co", False, b"m", 1), (HEAD, False, b"", 1),
              (HEAD + b"\r\n", False, b" ", 2)]
ended = []


def unfinished(sent, leaves, byte, kind):
    wait_for_end(sent, leaves, byte)
    ended.append(kind)


def clients_that_left():
    """Whoever leaves frees a row, with a stream or without."""
    for streams in (False, True):
        left = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(40)]
        for client in left:
            body = json.dumps({"prompt": "the cat", "max_tokens": 100, "stream": streams}).encode()
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        for client in left:
            client.close()
        check("after those that left", ask("/v1/completions", b'{"prompt":"a","max_tokens":1}')[0] == 200)


def ends_at_last():
    """What has begun when the server is told to end still ends."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "the cat", "max_tokens": 100, "stream": True}))
    response = connection.getresponse()
    first = response.read(20)
    os.kill(PID, signal.SIGTERM)
    text = first + response.read()
    check("the last answer is whole", text.endswith(b"data: [DONE]\n\n"), text[-200:])


check("health", ask("/health", None, "GET") == (200, b'{"status":"ok"}\n'))
check("models", [m["id"] for m in json.loads(ask("/v1/models", None, "GET")[1])["data"]] == ["r"])
slow = [threading.Thread(target=unfinished, args=case) for case in UNFINISHED]
for one in slow:
    one.start()
check("a model", json.loads(ask("/v1/models/r", None, "GET")[1])["id"] == "r")
check("no such model", ask("/v1/models/q", None, "GET")[0] == 404)
logprobs()
several()
best()
echo()
changed_logits()
objects()
schemas()
many_clients()
wrong_requests()
clients_that_left()
for one in slow:
    one.join()
check("requests that are never finished", ended == sorted(ended) and len(ended) == len(UNFINISHED), ended)
ends_at_last()
print(f"{counts[0]} passed, {counts[1]} failed")
sys.exit(1 if counts[1] else 0)
