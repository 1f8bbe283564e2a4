"""What a measurement was taken on and with, in words: no host names, no paths."""
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOLD_VARIABLES = ("OPENBLAS_", "OMP_", "MKL_", "DNNL_", "ONEDNN_", "GOMP_", "KMP_", "MALLOC_", "TORCH", "M_")


def read(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return ""


def processor():
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


# Each level wants the flags of those before it, too (src/device/cpu/level.c).
LEVELS = (("avx2", {"avx2", "fma", "bmi2"}), ("avx512", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
          ("avx512_vnni", {"avx512_vnni"}), ("avx512_bf16", {"avx512_bf16"}), ("amx", {"amx_bf16"}))


def level():
    """The level of processors that mxtrain runs at (docs/PROCESSORS.md): MX_CPU, or what the processor's flags say."""
    flags = next((line for line in read("/proc/cpuinfo").splitlines() if line.startswith("flags")), "").split()
    found = "baseline"
    for name, wanted in LEVELS:
        if not wanted <= set(flags):
            break
        found = name
    return os.environ.get("MX_CPU") or found


def caches():
    """'L1d 48K, L2 1024K, L3 32768K' of the first core."""
    found = []
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = {"Data": "d", "Unified": ""}.get(read(index / "type"))
        if kind is not None:
            found.append(f"L{read(index / 'level')}{kind} {read(index / 'size')}")
    return ", ".join(found) or "caches unknown"


def memory_gib():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def describe():
    return (f"{processor()}; {os.cpu_count()} cores; {caches()}; {memory_gib():.0f} GiB; "
            f"huge pages {huge_pages()}; {platform.system()} {platform.release()}")


def huge_pages():
    words = read("/sys/kernel/mm/transparent_hugepage/enabled").split()
    return next((w.strip("[]") for w in words if w.startswith("[")), "unknown")


def output_of(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    return done.stdout.strip() if done.returncode == 0 else ""


def commit():
    """The commit; a + says that tracked files differ from it."""
    name = output_of(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT) or "unknown"
    return name + ("+" if output_of(["git", "status", "--porcelain", "-uno"], cwd=ROOT) else "")


def environment():
    told = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(TOLD_VARIABLES)]
    return " ".join(v for v in told if "/" not in v) or "no variables of OpenBLAS, oneDNN, OpenMP or MKL"


def versions(programs, peer_python):
    """Libraries of ours and of the peer (peer_python None = not asked for), and the environment."""
    told = [output_of([str(programs / "matmul_floor"), "--versions"]) or "libraries unknown"]
    if peer_python:
        names = "from importlib.metadata import version as v; print('torch', v('torch'), 'transformers', v('transformers'))"
        told.append(output_of([str(peer_python), "-c", names]) or "peer unknown")
    return "; ".join(told + ["environment: " + environment()])


def busy_seconds(cores):
    """Seconds that these cores have been busy since boot, with whatever."""
    total = 0
    for line in read("/proc/stat").splitlines():
        name, *ticks = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _idle, _iowait, irq, softirq, steal = (int(t) for t in ticks[:8])
            total += user + nice + system + irq + softirq + steal
    return total / os.sysconf("SC_CLK_TCK")
