#!/usr/bin/env python3
"""page.py PAGE.html RUN... — whether a report is whole, asks nothing of any network, lets nothing of a
run become markup, and has the points of the runs' metrics.jsonl.

With --browser a headless Chromium (if it is here) opens it: no error, no request, values under the mouse, zoom.
With --still it is a page without curves, about a plan.
"""
import glob
import html.parser
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

MOST_BYTES = 5 << 20
VOID = {"meta", "br"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "viewbox", "role", "aria-label", "d", "x",
              "y", "width", "height", "type"}


class Page(html.parser.HTMLParser):
    """Elements that are opened and closed in order; texts by the element that they stand in."""

    def __init__(self):
        super().__init__()
        self.open, self.count, self.ids, self.text = [], {}, [], {}

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert set(names) <= ATTRIBUTES, f"{tag} has {names}"
        assert len(set(names)) == len(names), f"{tag} has one attribute twice"
        self.count[tag] = self.count.get(tag, 0) + 1
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)


def metrics(run):
    out = {}
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf8") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            for name, value in row.items():
                if name not in ("step", "run_name"):
                    out.setdefault(name, []).append((int(row["step"]), value))
    return out


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-12)


def check_points(series, wanted):
    """Each value is in the point of its step, and each point's least and greatest are values."""
    steps, lo, hi = series["step"], series["lo"], series.get("hi")
    assert steps == sorted(steps), "steps are not in order"
    if hi is None:
        got = list(zip(steps, lo))
        assert len(got) == len(wanted), f"{series['name']}: {len(got)} points, {len(wanted)} values"
        for (a, x), (b, y) in zip(got, sorted(wanted, key=lambda p: p[0])):
            assert a == b and (x == y or near(x, y)), f"{series['name']}: {(a, x)}, not {(b, y)}"
        return
    at, seen = 0, [[math.inf, -math.inf] for _ in steps]
    for step, value in wanted:
        while at + 1 < len(steps) and steps[at + 1] <= step:
            at += 1
        if value is not None:
            seen[at] = [min(seen[at][0], value), max(seen[at][1], value)]
    for (least, greatest), x, y in zip(seen, lo, hi):
        assert x is None if least > greatest else near(x, least) and near(y, greatest), f"{series['name']}: {x} to {y}"


def check_data(data, runs):
    all_metrics = [metrics(run) for run in runs]
    assert len(data["runs"]) == len(runs)
    names = set()
    for chart in data["charts"]:
        for series in chart["series"]:
            names.add(series["name"])
            check_points(series, all_metrics[series["run"]][series["name"]])
    for run in all_metrics:
        for name in ("learning/loss", "eval/avg_loss", "learning/current_learning_rate", "learning/raw_grad_norm",
                     "learning/param_norm", "perf/per_device_tokens_per_sec"):
            assert name in names or name not in run, f"no curve of {name}"


def check_text(path):
    """A page that is whole, of known attributes alone, and without a reference."""
    text = open(path, encoding="utf8").read()
    assert len(text.encode()) <= MOST_BYTES, f"{len(text)} bytes"
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open, f"never closed: {page.open}"
    assert len(set(page.ids)) == len(page.ids), "an id stands twice"
    bare = text.replace("http://www.w3.org/2000/svg", "")  # the name of SVG, which nobody asks for
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", re.sub(r"^ *//.*$", "", bare, flags=re.M)), "a reference"
    assert page.count["style"] == 1, page.count
    return text, page


def check_page(path, runs):
    text, page = check_text(path)
    assert page.count["script"] == 2, page.count
    data = json.loads("".join(page.text["script", "data"]))
    check_data(data, runs)
    assert page.count["figure"] == len(data["charts"])
    print(f"{len(text.encode())} bytes, {len(data['charts'])} charts, {page.count['tr']} rows")


# What the browser runs behind the page's own script.
PROBE = """<script>
window.onload = () => {
  const say = {}, svg = document.querySelector('.chart svg'), box = svg.getBoundingClientRect();
  const fire = (name, share) => svg.dispatchEvent(new MouseEvent(name,
    { clientX: box.left + box.width * share, clientY: box.top + 20, bubbles: true, cancelable: true }));
  const ticks = () => [...svg.querySelectorAll('.axes text:not(.y)')].map(t => t.textContent);
  const curves = () => [...svg.querySelectorAll('.curves path')].map(p => p.getAttribute('d'));
  say.before = ticks(); say.curves = curves();
  fire('mousemove', 0.5);
  say.tip = document.querySelector('.tip').textContent;
  fire('mouseleave', 0.5);
  say.gone = !document.querySelector('.tip');
  fire('mousedown', 0.3); fire('mousemove', 0.6); fire('mouseup', 0.6);
  say.zoomed = ticks();
  svg.dispatchEvent(new MouseEvent('dblclick'));
  say.after = ticks(); say.again = curves();
  say.requests = performance.getEntriesByType('resource').map(r => r.name);
  const out = document.createElement('pre');
  out.id = 'said';
  out.textContent = JSON.stringify(say);
  document.body.append(out);
};
</script>"""


# The same of a page without curves.
STILL = """<script>
window.onload = () => {
  const out = document.createElement('pre'), seen = e => e.getBoundingClientRect().width > 0;
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  out.id = 'said';
  out.textContent = JSON.stringify({ pictures: [...document.querySelectorAll('svg')].filter(seen).length,
    requests: performance.getEntriesByType('resource').map(r => r.name) });
  document.body.append(out);
};
</script>"""


def close_to(a, b):
    """Two paths that differ by no more than what rounding to a tenth may."""
    x, y = re.findall(r"[A-Za-z]|[-0-9.]+", a), re.findall(r"[A-Za-z]|[-0-9.]+", b)
    return len(x) == len(y) and all(p == q or abs(float(p) - float(q)) < 0.11 for p, q in zip(x, y))


def browser():
    for name in ("chromium", "chromium-headless-shell", "google-chrome", *glob.glob("/usr/lib/chromium/chromium")):
        if shutil.which(name):
            return shutil.which(name)
    return None


def ask_browser(path, probe):
    """What the page's elements say to a script; None = there is no browser."""
    program = browser()
    if not program:
        print("chromium is not here, NOT TESTED in a browser")
        return None
    with tempfile.TemporaryDirectory() as folder:
        probed = os.path.join(folder, "page.html")
        with open(probed, "w", encoding="utf8") as file:
            file.write(open(path, encoding="utf8").read().replace("</body>", probe + "</body>"))
        ended = subprocess.run([program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-extensions",
                                "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--dump-dom",
                                "--virtual-time-budget=5000", f"--user-data-dir={folder}/profile", "file://" + probed],
                               capture_output=True, text=True, timeout=120, check=False)
    console = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
    assert not console, console
    said = re.search(r'<pre id="said">(.*?)</pre>', ended.stdout, re.S)
    assert said, f"the page's script did not run: {ended.stderr[-500:]}"
    return json.loads(said.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def check_still(path):
    _, page = check_text(path)
    say = ask_browser(path, STILL)
    assert say is None or (not say["requests"] and say["pictures"] == page.count["svg"]), say
    print(f"{page.count['svg']} pictures, {page.count['tr']} rows")


def check_browser(path):
    say = ask_browser(path, PROBE)
    if say is None:
        return
    assert " at step " in say["tip"], say["tip"]
    assert say["gone"] and not say["requests"], say
    assert say["zoomed"] != say["before"] and say["after"] == say["before"], (say["before"], say["zoomed"], say["after"])
    assert len(say["curves"]) == len(say["again"]) and all(map(close_to, say["curves"], say["again"])), "the script draws otherwise"
    print(f"{os.path.basename(browser())}: no error, no request; under the mouse: {say['tip'].splitlines()[0]}")


arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
if "--still" in sys.argv:
    check_still(arguments[0])
else:
    check_page(arguments[0], arguments[1:])
    if "--browser" in sys.argv:
        check_browser(arguments[0])
