#!/usr/bin/env python3
"""Collectives between the processes of one host: alternates between `lockstep bench comm`, Open MPI, Intel MPI,
oneCCL and Gloo.

Usage: comm_table.py [--quick] [--rounds 3] [--ranks 2,4,8] [--seconds 1] [--output docs/benchmarks]

Rounds alternate between the programs, because the speed of a machine drifts. Ratios are computed per round, and their
median and range are reported. Writes the tables of comm.md (between its markers) and comm.svg in --output, prints
which targets hold, and keeps all rows in build/comm_table.json. --quick makes one short round and writes only that
file, unless --output is given. A program that is missing, fails or takes too long is named and left out. Open MPI is
Debian's (libopenmpi-dev, openmpi-bin). Intel MPI and oneCCL come from PyPI and need their own Python environment:

    python3 -m venv .deps/intel && .deps/intel/bin/pip install impi-devel oneccl-devel
"""
import argparse
import collections
import ctypes
import datetime
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import comm_chart
from provenance import ROOT, commit, machine

KIB, MIB = 1 << 10, 1 << 20
OTHERS = ("broadcast", "reduce_scatter", "all_gather", "all_to_all", "send_recv")
SYMMETRIC, PRIVATE, OPENMPI, INTELMPI, ONECCL, GLOO = SERIES = (
    "Lockstep, symmetric", "Lockstep, private", "Open MPI", "Intel MPI", "oneCCL", "Gloo")
OURS = (SYMMETRIC, PRIVATE)
PEERS = (OPENMPI, INTELMPI, ONECCL, GLOO)
SOURCES = ROOT / "benchmarks/peers/comm"
BEGIN, END = "<!-- table:begin -->", "<!-- table:end -->"


class Unavailable(Exception):
    pass


def run(command, seconds, environment=None):
    """Returns standard output. A command that takes longer is ended with all its processes."""
    words = [str(word) for word in command]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, env=environment)
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # so that mpirun ends its ranks, which are in their own process groups
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate()
        raise Unavailable(f"did not end in {seconds:g} s (--limit): {' '.join(words)}") from None
    if process.returncode:
        last = errors.strip()[-500:] or "no message"
        raise Unavailable(f"ended with {process.returncode}: {' '.join(words)}: {last}")
    return output


class Lockstep:
    def __init__(self, options, symmetric):
        self.options, self.symmetric = options, symmetric
        if not options.program.exists():
            raise Unavailable(f"{options.program} does not exist; build it with `make`")

    def rows(self, ranks, collectives, sizes):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            run([self.options.program, "bench", "comm", "--json", file, "--nproc-per-node", ranks,
                 "--collective", ",".join(collectives), "--sizes", ",".join(map(str, sizes)),
                 "--seconds", self.options.seconds, "--symmetric" if self.symmetric else "--private"],
                self.options.limit)
            return [row for row in json.loads(file.read_text()) if row["symmetric"] == self.symmetric]


class Gloo:
    def __init__(self, options):
        self.options = options
        self.command = [options.peer_python, ROOT / "benchmarks/peers/comm_gloo.py"]
        if not options.peer_python.exists():
            raise Unavailable(f"{options.peer_python} does not exist; name a Python that has torch with "
                              "--peer-python")

    def rows(self, ranks, collectives, sizes):
        return json.loads(run(
            [*self.command, "--ranks", ranks, "--collectives", ",".join(collectives), "--sizes",
             ",".join(map(str, sizes)), "--seconds", self.options.seconds], self.options.limit))


def compile_peer(compiler, sources, program, more=()):
    """Compiles comm_mpi.c together with the calls that it times."""
    run([*compiler, "-O3", "-march=native", *sources, "-o", program, *more], 60)


def peer_arguments(options, collectives, sizes):
    return ["--collectives", ",".join(collectives), "--sizes", ",".join(map(str, sizes)), "--seconds",
            options.seconds]


class OpenMpi:
    def __init__(self, options, folder):
        self.options, self.program = options, pathlib.Path(folder) / "comm_openmpi"
        for tool in ("mpicc", "mpirun"):
            if shutil.which(tool) is None:
                raise Unavailable(f"{tool} is missing; install libopenmpi-dev and openmpi-bin")
        version = run(["mpirun", "--version"], 20).splitlines()[0]
        if "Open MPI" not in version:
            raise Unavailable(f"mpirun is not Open MPI's but '{version}'; install openmpi-bin")
        compile_peer(["mpicc", "-std=c11"], [SOURCES / "comm_mpi.c", SOURCES / "calls_mpi.c"], self.program)

    def rows(self, ranks, collectives, sizes):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return json.loads(run(["mpirun", "-n", ranks, "--oversubscribe", *root, "--bind-to", "none", self.program,
                               *peer_arguments(self.options, collectives, sizes)], self.options.limit))


class Intel:
    """Intel MPI, or oneCCL started by it. Both come from PyPI, in the Python environment --intel."""

    def __init__(self, options, folder, name):
        self.options, self.program = options, pathlib.Path(folder) / f"comm_{name}"
        self.name, root = name, options.intel
        library = "libmpi.so" if name == "intelmpi" else "libccl.so"
        if not (root / "bin/mpiexec.hydra").exists() or not (root / "lib" / library).exists():
            raise Unavailable(f"{root}/lib/{library} or its mpiexec.hydra is missing; install impi-devel and "
                              "oneccl-devel there (see the head of comm_table.py), or name another --intel")
        self.environment = {**os.environ, "I_MPI_ROOT": str(root), "LD_LIBRARY_PATH": str(root / "lib"),
                            "PATH": f"{root / 'bin'}:{os.environ['PATH']}"}
        headers, libraries = f"-I{root / 'include'}", [f"-L{root / 'lib'}", "-lmpi"]
        if name == "intelmpi":
            compile_peer(["gcc", "-std=c11", headers], [SOURCES / "comm_mpi.c", SOURCES / "calls_mpi.c"],
                         self.program, libraries)
            return
        harness = pathlib.Path(folder) / "comm_mpi.o"
        compile_peer(["gcc", "-std=c11", headers, "-c"], [SOURCES / "comm_mpi.c"], harness)
        # Nothing here calls SYCL. The newest SYCL runtime may lack symbols that the newest oneCCL refers to.
        compile_peer(["g++", "-std=c++17", headers], [SOURCES / "calls_oneccl.cpp", harness], self.program,
                     [*libraries, "-lccl", "-Wl,--unresolved-symbols=ignore-in-shared-libs", "-Wl,-z,lazy"])

    def rows(self, ranks, collectives, sizes):
        if self.name == "oneccl":
            # If ranks have no spare core for its worker threads, oneCCL 2022.1 crashes in send.
            collectives = [name for name in collectives if name != "send_recv"]
        output = run([self.options.intel / "bin/mpiexec.hydra", "-launcher", "fork", "-n", ranks,
                      self.program, *peer_arguments(self.options, collectives, sizes)],
                     self.options.limit, self.environment)
        return json.loads(output[output.index("[\n"):])  # oneCCL's warnings precede the rows


def contestants(options, folder):
    makers = {SYMMETRIC: lambda: Lockstep(options, True), PRIVATE: lambda: Lockstep(options, False),
              OPENMPI: lambda: OpenMpi(options, folder),
              INTELMPI: lambda: Intel(options, folder, "intelmpi"),
              ONECCL: lambda: Intel(options, folder, "oneccl"), GLOO: lambda: Gloo(options)}
    ready = {}
    for name, make in makers.items():
        try:
            ready[name] = make()
        except Unavailable as reason:
            print(f"without {name}: {reason}", flush=True)
    return ready


def copy_seconds(core, start, results):
    os.sched_setaffinity(0, {core})
    size = 64 * MIB
    source, target = (ctypes.create_string_buffer(size) for _ in range(2))
    ctypes.memset(source, 1, size)
    start.wait()
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        ctypes.memmove(target, source, size)
        times.append(time.perf_counter() - begin)
    results.put(statistics.median(times) / (2 * size))


def copy_gbps():
    """Returns the GB/s that one core reads and writes while all cores copy 64 MiB at once."""
    cores, context = sorted(os.sched_getaffinity(0)), multiprocessing.get_context("fork")
    start, results = context.Barrier(len(cores)), context.Queue()
    workers = [context.Process(target=copy_seconds, args=(core, start, results)) for core in cores]
    for worker in workers:
        worker.start()
    seconds_per_byte = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    return 1 / statistics.mean(seconds_per_byte) / 1e9


class Figures:
    """The rows of all rounds: `medians[ranks, collective, bytes][series]` has one median per round."""

    def __init__(self):
        self.rows, self.copies = [], []
        self.medians = collections.defaultdict(lambda: collections.defaultdict(dict))
        self.fastest = {}  # (key, series): the fastest single call of all rounds

    def add(self, number, series, rows):
        for row in rows:
            self.rows.append({**row, "round": number, "series": series})
            key = row["ranks"], row["collective"], row["bytes"]
            self.medians[key][series][number] = row["median_us"]
            self.fastest[key, series] = min(row["min_us"], self.fastest.get((key, series), row["min_us"]))

    def microseconds(self, key, series):
        values = self.medians[key].get(series) if key in self.medians else None
        return statistics.median(values.values()) if values else None

    def ratio(self, key, slower, faster):
        """Returns (median, lowest, highest) over the rounds of how many times faster `faster` is, or None."""
        if key not in self.medians:
            return None
        slow, fast = (self.medians[key].get(series, {}) for series in (slower, faster))
        ratios = [slow[number] / fast[number] for number in slow if number in fast]
        return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else None

    def floor_us(self, ranks, size):
        """Returns the lower bound: each rank reads a slice of all buffers and writes it to all of them. The cores share
        the 2 x size bytes."""
        cores = min(ranks, len(os.sched_getaffinity(0)))
        return 2 * size * ranks / cores / statistics.median(self.copies) / 1e3


def measure(options):
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        ready = contestants(options, folder)
        if not ready:
            raise SystemExit("error: nothing to measure")
        jobs = [(ranks, collectives, sizes, series) for ranks in options.ranks
                for collectives, sizes in ((("all_reduce",), options.sizes), (OTHERS, options.other_sizes))
                for series in ready]
        for number in range(1, options.rounds + 1):
            figures.copies.append(copy_gbps())
            for job in list(jobs):
                ranks, collectives, sizes, series = job
                print(f"round {number} of {options.rounds}: {ranks} ranks, {', '.join(collectives)}, {series}",
                      flush=True)
                try:
                    figures.add(number, series, ready[series].rows(ranks, collectives, sizes))
                except Unavailable as reason:
                    print(f"left out from now on: {series} {reason}", flush=True)
                    jobs.remove(job)
    return figures


def targets(figures, options):
    """Yields (what, figure, limit, whether smaller is better). The figure is None if it was not measured."""
    def against_gloo(name, key, mine, limit):
        # Gloo's medians jump between two values (peers/comm_gloo.py). Its fastest call shows the lower one.
        fastest, us = figures.fastest.get((key, GLOO)), figures.microseconds(key, mine)
        extent = f" (than its fastest call: {fastest / us:.1f})" if fastest and us else ""
        return f"{name}: times faster than Gloo{extent}", figures.ratio(key, GLOO, mine), limit, False

    for size, gloo, openmpi in ((4 * KIB, 150, None), (MIB, 50, None), (25 * MIB, 15, 3)):
        key, name = (2, "all_reduce", size), f"all_reduce, 2 ranks, {comm_chart.bytes_text(size)}, symmetric"
        if size == 4 * KIB:
            yield f"{name}: µs", figures.microseconds(key, SYMMETRIC), 2, True
        yield against_gloo(name, key, SYMMETRIC, gloo)
        if openmpi:
            yield f"{name}: times faster than Open MPI", figures.ratio(key, OPENMPI, SYMMETRIC), openmpi, \
                False
            mine = figures.microseconds(key, SYMMETRIC)
            yield f"{name}: times the floor", mine and mine / figures.floor_us(2, size), 1.5, True
    for ranks in options.ranks:
        for size in options.sizes:
            key = ranks, "all_reduce", size
            for mine in (PRIVATE,) if ranks == 2 else OURS:
                name = f"all_reduce, {ranks} ranks, {comm_chart.bytes_text(size)}, {mine.split()[-1]}"
                yield against_gloo(name, key, mine, 3 if ranks == 2 else 5)
                yield f"{name}: times Open MPI's time", figures.ratio(key, mine, OPENMPI), 1.1, True
    for collective in OTHERS:
        for size in (4 * KIB, 25 * MIB):
            for mine in OURS:
                name = f"{collective}, 2 ranks, {comm_chart.bytes_text(size)}, {mine.split()[-1]}"
                yield against_gloo(name, (2, collective, size), mine, 5)


def print_targets(figures, options):
    counts = collections.Counter()
    for what, figure, limit, at_most in targets(figures, options):
        value, spread = (figure[0], f" ({figure[1]:.2f} to {figure[2]:.2f})") \
            if isinstance(figure, tuple) else (figure, "")
        verdict = "not measured" if value is None else \
            "holds" if (value <= limit if at_most else value >= limit) else "MISSED"
        counts[verdict] += 1
        text = "–" if value is None else f"{value:.2f}{spread}"
        print(f"{verdict:12}  {what}: {text}, {'at most' if at_most else 'at least'} {limit}")
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def cell(figures, key, series):
    """The median over the rounds and their range, in the median's unit."""
    values = figures.medians[key].get(series)
    if not values:
        return "–"
    median = statistics.median(values.values())
    unit, name = next(((unit, name) for unit, name in ((1e6, "s"), (1e3, "ms")) if median >= unit), (1, "µs"))
    texts = [f"{value / unit:.{2 if median / unit < 1 else 1 if median / unit < 100 else 0}f}"
             for value in (median, min(values.values()), max(values.values()))]
    return f"{texts[0]} {name}" + (f" ({texts[1]} to {texts[2]})" if texts[1] != texts[2] else "")


def times_text(figures, key, slower):
    ratios = [figures.ratio(key, slower, mine) for mine in OURS]
    return " / ".join("–" if ratio is None else f"{ratio[0]:.{0 if ratio[0] >= 10 else 1}f}"
                      for ratio in ratios)


def fastest_text(figures, key):
    us = figures.fastest.get((key, GLOO))
    return "–" if us is None else comm_chart.time_text(float(f"{us:.3g}"))


def tables(figures, options):
    lines = ["![Time of an all-reduce against its size](comm.svg)", ""]
    for collective in ("all_reduce", *OTHERS):
        lines += [f"### {collective}", "",
                  "| ranks | size | " + " | ".join(SERIES) + " | Gloo's fastest call | " +
                  " | ".join(f"faster than {peer}" for peer in PEERS) + " |",
                  "|---" * (3 + len(SERIES) + len(PEERS)) + "|"]
        for key in sorted(key for key in figures.medians if key[1] == collective):
            cells = [str(key[0]), comm_chart.bytes_text(key[2]),
                     *(cell(figures, key, series) for series in SERIES),
                     fastest_text(figures, key), *(times_text(figures, key, peer) for peer in PEERS)]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    low, high = min(figures.copies), max(figures.copies)
    lines += [
        f"Times are each round's median call, as the median over {options.rounds} round(s) in turn with their range. \"Faster\" says",
        "how many times as fast we are, in symmetric / private memory, as the median of the rounds' ratios.",
        "", f"- {datetime.date.today()}, {machine()}; commit {commit()}.",
        f"- While all cores copied, one read and wrote {low:.1f} to {high:.1f} GB/s.",
        f"- Made by `python3 benchmarks/comm_table.py --rounds {options.rounds} --seconds "
        f"{options.seconds:g}`."]
    return "\n".join(lines)


def panels(figures):
    result = {}
    for ranks in sorted({key[0] for key in figures.medians}):
        keys = [key for key in figures.medians if key[:2] == (ranks, "all_reduce")]
        lines = {series: {key[2]: figures.microseconds(key, series) for key in keys
                          if figures.microseconds(key, series)} for series in SERIES}
        # The caches serve a few MiB or less, so the bandwidth of memory is not a lower bound there.
        lines["copy floor"] = {key[2]: figures.floor_us(ranks, key[2]) for key in keys if key[2] >= MIB}
        result[f"{ranks} ranks"] = {name: points for name, points in lines.items() if points}
    return result


def around_tables(page):
    """Returns the page's text before and after the tables."""
    text = page.read_text() if page.exists() else ""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"error: {page} must have one line '{BEGIN}' and one '{END}'")
    return text.split(BEGIN)[0], text.split(END)[1]


def write(figures, options):
    page = options.output / "comm.md"
    before, after = around_tables(page)
    page.write_text(f"{before}{BEGIN}\n{tables(figures, options)}\n{END}{after}")
    (options.output / "comm.svg").write_text(comm_chart.chart(
        f"all_reduce of float32 on {len(os.sched_getaffinity(0))} cores", panels(figures)))
    print(f"wrote {page} and {options.output / 'comm.svg'}")


def numbers(text):
    return [int(number) for number in text.split(",")]


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--ranks", type=numbers, default=[2, 4, 8])
    parser.add_argument("--sizes", type=numbers, help="sizes of all_reduce in bytes, separated by commas")
    parser.add_argument("--other-sizes", type=numbers, default=[4 * KIB, MIB, 25 * MIB])
    parser.add_argument("--seconds", type=float, help="time for each collective and size")
    parser.add_argument("--limit", type=float, default=240, help="seconds that one run may take (default 240)")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/lockstep")
    parser.add_argument("--peer-python", type=pathlib.Path, default=ROOT / ".deps/venv/bin/python")
    parser.add_argument("--intel", type=pathlib.Path, default=ROOT / ".deps/intel",
                        help="Python environment with impi-devel and oneccl-devel")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (0.2 if options.quick else 1)
    few = [4 * KIB, MIB, 25 * MIB]
    options.sizes = options.sizes or (few if options.quick else sorted(
        {4, 256, *few, 64 * KIB, 256 * KIB, 4 * MIB, 256 * MIB}))
    if options.output is None and not options.quick:
        options.output = ROOT / "docs/benchmarks"
    return options


def main():
    options = parse()
    if options.output is not None:
        around_tables(options.output / "comm.md")  # fail before the long measurement, not after it
    figures = measure(options)
    rows = ROOT / "build" / "comm_table.json"
    rows.parent.mkdir(exist_ok=True)
    rows.write_text(json.dumps({"copy_gbps": figures.copies, "rows": figures.rows}, indent=2) + "\n")
    if options.output is not None:
        write(figures, options)
    print_targets(figures, options)


if __name__ == "__main__":
    sys.exit(main())
