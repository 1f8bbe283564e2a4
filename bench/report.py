"""From the rows of results.csv to the tables of RESULTS.md: of each kind, workload and dtype the newest
sitting, held against the bars; then the history of all."""
import csv
import statistics

FIELDS = ("sitting machine commit versions kind workload dtype who environment settings round pair threads cores steps "
          "min_s median_s max_s wall_s tokens_per_s tflops rss_mb plan_mb activations_mb first_step_s others_cpu "
          "calls share warm_s mb mean_s reference_mb level").split()
NUMBERS = ("steps min_s median_s max_s wall_s tokens_per_s tflops rss_mb plan_mb activations_mb first_step_s others_cpu "
           "calls share warm_s mb mean_s reference_mb").split()
AS_FOUND = "as found"
RANK_AXES = ("data", "fsdp")  # along which several ranks are measured
QUIET = 0.05  # share of the cores that others may use before a process counts as disturbed
LEAST_STEPS = 5  # timed steps of a process; fewer are a trial, not a result
KINDS_OF_OP = 25  # rows of a table of kernels
NOTHING = "not measured"
MISSED = "**not met**"
COLUMNS = (("AVX2", ("avx2",)), ("AVX-512", ("avx512", "avx512_vnni", "avx512_bf16")), ("AMX", ("amx",)))  # and the levels of each

HEAD = """# Results

Written by bench/run.py from bench/results.csv, where every process that ran has its row; bench/README.md says what
the workloads are and what counts. Seconds are of one training step: median over processes of the median of each
process's timed steps, two warm-up steps left out. Ratios are taken pair by pair, ours and theirs run one after the
other; the median of the pairs counts, their range stands beside it. All figures are with `remat_policy=none` unless
they say otherwise. MB are 10^6 bytes.
"""


BY_LEVEL_HEAD = """By level of the processor (docs/PROCESSORS.md), each cell from the newest sitting at that level in which PyTorch
ran. A dash: not measured there.

"""


# ---- rows


def read(path):
    if not path.exists():
        return []
    with path.open(newline="") as f:
        rows = list(csv.DictReader(f))
    for row in rows:
        for name in NUMBERS:
            row[name] = float(row[name]) if row.get(name) else None
    return rows


def latest(rows, kind, workload, dtype, beside=None):
    """Rows of the newest sitting that has any of these; where a rival is named, and ever ran, of those beside it."""
    found = [r for r in rows if (r["kind"], r["workload"], r["dtype"]) == (kind, workload, dtype)]
    sittings = [r["sitting"] for r in found if r["who"] == beside] or [r["sitting"] for r in found]
    return [r for r in found if r["sitting"] == sittings[-1]] if sittings else []


def chosen(rows, who):
    return [r for r in rows if r["who"] == who and r["environment"] == AS_FOUND]


def pairs(rows, who):
    """(ours, theirs) of each pair that ran one after the other."""
    ours = {(r["round"], r["pair"]): r for r in chosen(rows, "ours")}
    return [(ours[r["round"], r["pair"]], r) for r in chosen(rows, who) if (r["round"], r["pair"]) in ours]


def median_of(rows, name):
    values = [r[name] for r in rows if r[name] is not None]
    return statistics.median(values) if values else None


# ---- text


def text_of(value, digits=3):
    """A number with so many significant digits, never in powers of ten."""
    if value is None:
        return ""
    if value >= 10 ** (digits - 1):
        return f"{value:.0f}"
    return f"{value:.{digits}g}" if abs(value) >= 0.001 or value == 0 else f"{value:.6f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]) + "\n"


def spread(values):
    return f"{min(values):.2f} – {max(values):.2f}" if len(values) > 1 else ""


# ---- bars


def bar(name, values, wanted, is_least, unit="×"):
    """One row: the median of the pairs' values against the bar."""
    limit = f"{'≥' if is_least else '≤'} {wanted} {unit}"
    if not values:
        return name, limit, "", "", NOTHING
    middle = statistics.median(values)
    is_met = middle >= wanted if is_least else middle <= wanted
    return name, limit, f"{middle:.2f}", spread(values), "met" if is_met else MISSED


def faster(rows, who):
    return [theirs["median_s"] / ours["median_s"] for ours, theirs in pairs(rows, who)]


def over_floor(rows):
    return [ours["median_s"] / floor["median_s"] for ours, floor in pairs(rows, "floor")]


def memory_ratio(rows):
    return [ours["rss_mb"] / theirs["rss_mb"] for ours, theirs in pairs(rows, "eager")]


def plan_error(rows, who="ours"):
    """How far the plan is off, as a share of what is allowed: 5 % + 40 MB."""
    return [abs(r["plan_mb"] - r["rss_mb"]) / (0.05 * r["rss_mb"] + 40) for r in chosen(rows, who)]


def start_excess(rows, pages):
    """Seconds to the first step's end beyond one step and the touching of the plan's bytes."""
    return [ours["first_step_s"] - ours["median_s"] - touch["median_s"] for ours, touch in pairs(rows, f"touch {pages}")]


def length_growth(rows):
    """Activation memory at each length over that at half of it."""
    by_length = {int(r["settings"].split("=")[1]): r["activations_mb"] for r in rows}
    return [by_length[n] / by_length[n // 2] for n in by_length if n // 2 in by_length]


def over_compile(rows):
    return faster(rows, "compile")


def over_eager(rows):
    return faster(rows, "eager")


def over_transformers(rows):
    return faster(rows, "transformers")


def over_llama(rows):
    return faster(rows, "llama.cpp")


# What is measured in rows of a kind, beside whom, and what is wanted at each level of COLUMNS; None = nothing is.
BY_LEVEL = (
    ("W1 f32, tokens/s over PyTorch eager", "compare", "w1", "f32", "eager", over_eager, True, (1.45, 2.7, 1.35)),
    ("W1 f32, a step over its matmuls alone", "compare", "w1", "f32", "eager", over_floor, False, (1.08, 1.10, 1.08)),
    ("W1 f32, peak RSS over PyTorch eager", "compare", "w1", "f32", "eager", memory_ratio, False, (0.62, 0.62, 0.60)),
    ("W1 bf16, tokens/s over PyTorch compile", "compare", "w1", "bf16", "eager", over_compile, True, (5, 1.6, 2.5)),
    ("W2 f32, tokens/s over PEFT eager", "compare", "w2", "f32", "eager", over_eager, True, (1.6, 2.5, 1.6)),
    ("W2 bf16, tokens/s over PEFT eager", "compare", "w2", "bf16", "eager", over_eager, True, (None, 2, 4)),
    ("W2Q f32, tokens/s over nf4 on PyTorch eager", "compare", "w2q", "f32", "eager", over_eager, True, (3, 3, 3)),
    ("W3 f32, steps/s over PyTorch eager", "compare", "w3", "f32", "eager", over_eager, True, (2.5, 3, 2.5)),
    ("W4 f32, steps/s over PyTorch SDPA", "compare", "w4", "f32", "eager", over_eager, True, (1.8, 2.5, 1.6)),
    ("W4 bf16, steps/s over PyTorch SDPA", "compare", "w4", "bf16", "eager", over_eager, True, (None, 2.2, 3.5)),
    ("W6 f32, steps/s over PyTorch eager", "compare", "w6", "f32", "eager", over_eager, True, (1.6, 2.5, 1.6)),
    ("W6 bf16, steps/s over PyTorch eager", "compare", "w6", "bf16", "eager", over_eager, True, (None, 2, 4)),
    ("W1 f32, tokens one by one over transformers", "decode", "w1", "f32", "transformers", over_transformers, True, (3, 3, 3)),
    ("W1 bf16, tokens one by one over transformers", "decode", "w1", "bf16", "transformers", over_transformers, True, (3, 3, 3)),
    ("W1 f32, tokens one by one over llama.cpp", "decode", "w1", "f32", "llama.cpp", over_llama, True, (1, 1, 1)),
    ("W1 bf16, tokens one by one over llama.cpp", "decode", "w1", "bf16", "llama.cpp", over_llama, True, (1, 1, 1)),
)


def cell(values, limit, is_least):
    """The median of the pairs' values (what is wanted), and whether that is missed."""
    _, told, middle, _, verdict = bar("", values, limit or 0, is_least)
    text = middle or "–"
    if limit is None:
        return text
    return f"{text} ({told})" + (f" {MISSED}" if verdict == MISSED else "")


def bars_by_level(rows):
    """One line a bar, a cell a level: of the newest sitting there with a rival, or without one."""
    lines = []
    for name, kind, workload, dtype, beside, measure, is_least, wanted in BY_LEVEL:
        cells = []
        for (_, levels), limit in zip(COLUMNS, wanted):
            part = latest([r for r in rows if r["level"] in levels], kind, workload, dtype, beside)
            cells.append(cell(measure(part), limit, is_least))
        lines.append([name] + cells)
    return table(["measured (wanted)"] + [column for column, _ in COLUMNS], lines)


def bars_w1(rows):
    found = []
    for dtype in ("f32", "bf16"):
        part = latest(rows, "compare", "w1", dtype, "eager")
        found.append(bar(f"W1 {dtype}, plan off by, of the 5 % + 40 MB allowed", plan_error(part), 1, False))
    return found


def bars_adapters(rows):
    """W2 against our own W1, W7 against our own W2."""
    found = []
    for dtype in ("f32", "bf16"):
        part = latest(rows, "compare", "w2", dtype, "eager")
        found.append(bar(f"W2 {dtype}, tokens/s over our own W1", faster(part, "ours w1"), 1.4, True))
        part = latest(rows, "compare", "w2q", dtype)
        found.append(bar(f"W2Q {dtype}, a step over our own W2", [1 / ratio for ratio in faster(part, "ours w2")], 1.3, False))
    for dtype in ("f32", "bf16"):
        part = latest(rows, "compare", "w7", dtype)
        slower = [1 / ratio for ratio in faster(part, "ours w2")]
        memory = [r["reference_mb"] for r in chosen(part, "ours")]
        found += [bar(f"W7 {dtype}, a step over our own W2", slower, 1.65, False),
                  bar(f"W7 {dtype}, memory of the reference", memory, 0, False, "MB")]
    return found


def bars_int8(rows):
    """Operands in int8, against our own products of floats and PyTorch's."""
    found = []
    for dtype in ("f32", "bf16"):
        for name, whole in (("w1i", "w1"), ("w2i", "w2")):
            part = latest(rows, "compare", name, dtype)
            found.append(bar(f"{name.upper()} {dtype}, tokens/s over our own {whole.upper()}", faster(part, f"ours {whole}"), 1, True))
        part = latest(rows, "compare", "w1i", dtype, "eager")
        found.append(bar(f"W1I {dtype}, tokens/s over PyTorch eager on floats", faster(part, "eager"), 1, True))
    return found


def bars_start(rows):
    found = []
    for dtype in ("f32", "bf16"):
        part = latest(rows, "compare", "w1", dtype, "touch huge")
        found += [bar(f"W5 {dtype}, first step beyond step and touch (2 MiB pages, all threads)",
                      start_excess(part, "huge"), 0.5, False, "s"),
                  bar(f"W5 {dtype}, the same (4 KiB pages, one thread)", start_excess(part, "small"), 0.5, False, "s")]
    return found


def bars_checkpoints(rows):
    found = [bar(f"W1's state, {what}: MB/s over {peer}", faster(latest(rows, what, "w1", "f32"), "eager"), 1, True)
             for what, peer in (("save", "torch.save and fsync"), ("load", "torch.load"))]
    for dtype in ("f32", "bf16"):
        part = latest(rows, "saving", "w1", dtype)
        during, alone = (chosen(part, who) for who in ("saving", "alone"))
        found.append(bar(f"W1 {dtype}, a step while a checkpoint is written over one alone",
                         [d["mean_s"] / a["mean_s"] for d, a in zip(during, alone)], 1.10, False))
    return found


def bars_ranks(rows):
    """A rank is held to the plan as one process is; what MPI itself takes is in the 40 MB."""
    found = []
    for dtype in ("f32", "bf16"):
        part = latest(rows, "ranks", "w1", dtype)
        for axis in RANK_AXES:
            who = f"ranks {axis}"
            found += [bar(f"W1 {dtype}, a rank for each core along {axis}: tokens/s over one process",
                          [1 / x for x in faster(part, who)], 0.9, True),
                      bar(f"W1 {dtype}, along {axis}: plan of a rank off by, of the 5 % + 40 MB allowed",
                          plan_error(part, who), 1, False)]
    return found


def bars_of(rows):
    found = bars_w1(rows)
    for dtype in ("f32", "bf16"):
        found.append(bar(f"W4 {dtype}, activations when the length doubles (linear: ≤ 2)",
                         length_growth(latest(rows, "length", "w4", dtype)), 2.05, False))
    found += bars_adapters(rows) + bars_int8(rows) + bars_start(rows) + bars_checkpoints(rows) + bars_ranks(rows)
    for dtype in ("f32", "bf16"):
        per_token, per_flop = growth_spread(latest(rows, "growth", "w1", dtype))
        found += [bar(f"growth {dtype}, dearest over cheapest token, batch 2 to 8", per_token, 1.10, False),
                  bar(f"growth {dtype}, dearest over cheapest FLOP, layers 2 to 12", per_flop, 1.10, False)]
    return table(["bar", "wanted", "measured", "pairs", ""], found)


# ---- tables


def sitting_lines(rows):
    """What the newest sitting of each machine and set of versions was."""
    newest = {}
    for r in rows:
        newest[r["machine"], r["versions"]] = r
    return "".join(f"- {r['sitting']}, commit {r['commit']}, {r['threads']} threads on cores {r['cores']}. "
                   f"{r['machine']}. {r['versions']}.\n" for r in list(newest.values())[-3:])


def disturbed(rows):
    counted = [r for r in rows if r["others_cpu"] is not None]
    loud = [r for r in counted if r["others_cpu"] > QUIET]
    if not loud:
        return ""
    return (f"**Not quiet:** during {len(loud)} of {len(counted)} processes others used more than {100 * QUIET:.0f} % "
            f"of these cores (at most {100 * max(r['others_cpu'] for r in loud):.0f} %).\n\n")


def groups(rows, names):
    found = {}
    for r in rows:
        found.setdefault(tuple(r[n] for n in names), []).append(r)
    return found


def table_compare(rows):
    lines = []
    for (who, environment), part in groups(rows, ("who", "environment")).items():
        lines.append([who, environment, f"{len(part)} × {part[0]['steps'] or 0:.0f}", text_of(min(r["min_s"] for r in part)),
                      text_of(median_of(part, "median_s"), 4), text_of(max(r["max_s"] for r in part)),
                      text_of(median_of(part, "tokens_per_s"), 4), text_of(median_of(part, "rss_mb"), 4),
                      text_of(median_of(part, "plan_mb"), 4), text_of(median_of(part, "first_step_s"))])
    return table(["who", "environment", "processes × steps", "min s", "median s", "max s", "tokens/s", "peak RSS MB", "plan MB",
                  "first step done s"], lines)


def table_io(rows):
    lines = []
    for (who,), part in groups(rows, ("who",)).items():
        seconds = median_of(part, "median_s")
        lines.append([who, f"{len(part)} × {part[0]['steps']:.0f}", text_of(min(r["min_s"] for r in part)), text_of(seconds, 4),
                      text_of(max(r["max_s"] for r in part)), text_of(part[0]["mb"], 4), text_of(part[0]["mb"] / seconds, 4)])
    return table(["who", "processes × times", "min s", "median s", "max s", "MB", "MB/s"], lines)


def table_saving(rows):
    return table(["a step", "steps", "min s", "mean s", "median s", "max s", "peak RSS MB"],
                 [[r["who"], f"{r['steps']:.0f}", text_of(r["min_s"], 4), text_of(r["mean_s"], 4), text_of(r["median_s"], 4),
                   text_of(r["max_s"], 4), text_of(r["rss_mb"], 4)] for r in rows])


def growth_points(rows):
    points = {}
    for settings, part in groups(rows, ("settings",)).items():
        batch, layers = (int(w.split("=")[1]) for w in settings[0].split())
        seconds = median_of(part, "median_s")
        tokens = part[0]["tokens_per_s"] * part[0]["median_s"]
        points[batch, layers] = (seconds, seconds / tokens, seconds / part[0]["tflops"])
    return points


def growth_spread(rows):
    """Largest over smallest cost of a token from batch 2 on, and of a FLOP over layers; [] = not measured."""
    points = growth_points(rows)
    deep = max((layers for _, layers in points), default=0)
    per_token = [p[1] for (batch, layers), p in points.items() if layers == deep and batch >= 2]
    per_flop = [p[2] for (batch, _), p in points.items() if batch == 4]
    return [[max(v) / min(v)] if len(v) > 1 else [] for v in (per_token, per_flop)]


def table_growth(rows):
    lines = [[batch, layers, text_of(s, 4), text_of(1e6 * per_token, 4), text_of(per_tflop, 4)]
             for (batch, layers), (s, per_token, per_tflop) in sorted(growth_points(rows).items())]
    return table(["batch", "layers", "step s", "µs a token", "s a TFLOP"], lines)


def table_remat(rows):
    lines, base = [], None
    for (policy,), part in groups(rows, ("settings",)).items():
        seconds, rss = median_of(part, "median_s"), median_of(part, "rss_mb")
        base = base or (seconds, rss)
        lines.append([policy, text_of(seconds, 4), f"{seconds / base[0]:.2f}", text_of(rss, 4), f"{rss / base[1]:.2f}",
                      text_of(median_of(part, "plan_mb"), 4), text_of(median_of(part, "activations_mb"), 4)])
    return table(["remat_policy", "step s", "of none", "peak RSS MB", "of none", "plan MB", "activations MB"], lines)


def table_length(rows):
    return table(["length", "plan MB", "activations MB", "peak RSS MB"],
                 [[r["settings"].split("=")[1], text_of(r["plan_mb"], 4), text_of(r["activations_mb"], 4),
                   text_of(r["rss_mb"], 4)] for r in rows])


def table_profile(rows):
    return table(["op", "ms a step", "share", "calls in the run"],
                 [[r["who"], text_of(1e3 * r["median_s"], 4), f"{100 * r['share']:.1f} %", int(r["calls"])] for r in rows])


def rate(r):
    if r["tflops"]:
        return f"{1e3 * r['tflops'] / r['median_s']:.0f} GFLOP/s"
    return f"{1e-3 * r['mb'] / r['median_s']:.1f} GB/s"


def table_ops(rows):
    limits = [f"{r['settings'].rsplit(' ', 1)[0]} {r['median_s']:.0f} {r['settings'].rsplit(' ', 1)[1]}"
              for r in rows if r["who"] == "machine"]
    timed = [r for r in rows if r["who"] != "machine"]
    timed.sort(key=lambda r: -r["calls"] * r["median_s"])
    lines = [[r["who"], r["settings"], int(r["calls"]), f"{1e3 * r['calls'] * r['median_s']:.3f}",
              f"{1e3 * r['median_s']:.4f}", f"{1e3 * r['warm_s']:.4f}", rate(r), f"{100 * r['share']:.0f} %"]
             for r in timed[:KINDS_OF_OP]]
    return "; ".join(limits) + ".\n\n" + table(["entry", "kernel", "calls", "ms a step", "cold ms", "warm ms", "rate", "share"],
                                               lines)


def table_tokens(rows):
    lines = [[who, len(part), text_of(median_of(part, "tokens_per_s"), 4), text_of(min(r["tokens_per_s"] for r in part)),
              text_of(max(r["tokens_per_s"] for r in part)), text_of(median_of(part, "rss_mb"), 4)]
             for (who,), part in groups(rows, ("who",)).items()]
    return table(["who", "processes", "tokens/s", "least", "most", "peak RSS MB"], lines)


SECTIONS = (("compare", "{workload} {dtype}", table_compare),
            ("length", "{workload} {dtype}: memory against length", table_length),
            ("growth", "Growth, {workload} {dtype}", table_growth),
            ("ranks", "A rank for each core, {workload} {dtype}", table_compare),
            ("remat", "Rematerialisation, {workload} {dtype}", table_remat),
            ("prefill", "A prompt of 512 tokens, {workload} {dtype}", table_tokens),
            ("decode", "64 tokens one by one behind it, {workload} {dtype}", table_tokens),
            ("save", "Saving the state of {workload}: to disk, synced", table_io),
            ("load", "Loading the state of {workload}: ours with its hashes checked", table_io),
            ("saving", "A step while a checkpoint is written, {workload} {dtype}", table_saving),
            ("profile", "Where a step's time goes, {workload} {dtype} (mxtrain profile_ops=true, warm-up and start included)",
             table_profile),
            ("ops", "Kernels by themselves, {workload} {dtype} (the dearest)", table_ops))


def sections(rows):
    text = ""
    for kind, title, make in SECTIONS:
        for workload, dtype in dict.fromkeys((r["workload"], r["dtype"]) for r in rows if r["kind"] == kind):
            part = latest(rows, kind, workload, dtype)
            heading = title.format(workload=workload.upper(), dtype=dtype)
            text += f"\n### {heading}\n\nSitting of {part[0]['sitting']}, commit {part[0]['commit']}.\n\n"
            text += disturbed(part) + make(part)
    return text


def history(rows):
    lines = []
    compared = [r for r in rows if r["kind"] == "compare"]
    for (sitting, commit, workload, dtype), part in groups(compared, ("sitting", "commit", "workload", "dtype")).items():
        ratios = [faster(part, "eager"), faster(part, "compile"), over_floor(part)]
        lines.append([sitting, commit, workload.upper(), dtype, text_of(median_of(chosen(part, "ours"), "median_s"), 4)] +
                     [f"{statistics.median(v):.2f}" if v else "" for v in ratios])
    return table(["sitting", "commit", "workload", "dtype", "step s", "times eager", "times compile", "of matmuls alone"], lines)


def newest(rows):
    """The rows that the tables are made of."""
    return [r for key in groups(rows, ("kind", "workload", "dtype")) for r in latest(rows, *key)]


def trial(rows):
    is_trial = any(r["steps"] and r["steps"] < LEAST_STEPS for r in rows
                   if r["tokens_per_s"] and r["kind"] not in ("prefill", "decode"))  # whose steps are no training's
    return f"**A trial:** processes of fewer than {LEAST_STEPS} timed steps.\n\n" if is_trial else ""


def render(rows):
    text = HEAD + "\n## Bars\n\n" + trial(newest(rows)) + disturbed(newest(rows)) + BY_LEVEL_HEAD + bars_by_level(rows) + \
        "\nOf the newest sittings, whatever the processor:\n\n" + bars_of(rows)
    if not rows:
        return text + "\nNothing has been measured yet.\n"
    return text + "\n## Sittings\n\n" + sitting_lines(rows) + "\n## Tables\n" + sections(rows) + \
        "\n## History\n\n" + history(rows)
