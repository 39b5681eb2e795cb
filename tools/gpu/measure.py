"""Runs benchmarks. Their programs alternate in rounds, and each may use the time that its benchmark has left."""
import collections
import statistics

import processes

# One program of a benchmark. run(seconds) returns [(name of a part or "", {figure: number or text})], or raises
# Failed.
Side = collections.namedtuple("Side", "label run is_peer", defaults=(False,))
# `needs` is "" or the reason why the benchmark cannot run here. Ratios compare the figure `ratio` with the peer's;
# larger is better if `more_is_better`. `seconds` limits the whole benchmark.
Benchmark = collections.namedtuple("Benchmark", "name title needs sides seconds rounds ratio more_is_better",
                                   defaults=(1, None, True))
LEAST_SECONDS = 5  # with less time, no program is started
ROOM = 1.3         # multiple of a program's last duration that another round needs


class Failed(Exception):
    pass


def merged(runs):
    """Returns the median of each figure over the rounds, or the last value if the figure is a text."""
    figures = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run[name] for run in runs if run.get(name) is not None]
        numbers = all(isinstance(value, (int, float)) for value in values)
        figures[name] = statistics.median(values) if values and numbers else values[-1] if values else None
    return figures


def with_ratios(rows, benchmark):
    """Adds to each row how many times better it is than the peer's row for the same part."""
    key = benchmark.ratio
    peers = {row["part"]: row["figures"].get(key) for row in rows if row["is_peer"]}
    for row in rows:
        own, other = row["figures"].get(key), peers.get(row["part"])
        if key and not row["is_peer"] and own and other:
            row["figures"]["times the peer"] = own / other if benchmark.more_is_better else other / own
    return rows


def run_sides(benchmark, budget):
    """Returns ({(side's number, part): [figures of each round]}, [problems])."""
    own, found, problems = processes.Budget(benchmark.seconds), {}, []
    took = {}  # durations of the sides that have completed a round
    for number in range(benchmark.rounds):
        for place, side in enumerate(benchmark.sides):
            seconds = min(own.left(), budget.left())
            if number > 0 and (place not in took or seconds < ROOM * took[place]):
                continue
            if number == 0 and seconds < LEAST_SECONDS:
                problems.append(f"{side.label}: no time was left")
                continue
            clock = processes.Budget(seconds)
            try:
                for part, figures in side.run(seconds):
                    found.setdefault((place, part), []).append(figures)
                took[place] = clock.used()
            except Failed as error:
                problems.append(f"{side.label}: {error}")
                took.pop(place, None)
            except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
                problems.append(f"{side.label}: its figures cannot be read: {type(error).__name__}: {error}")
                took.pop(place, None)
    return found, problems


def measure(benchmark, budget):
    """Returns the report on one benchmark."""
    report = {"name": benchmark.name, "title": benchmark.title, "rows": [], "problems": [], "seconds": 0.0}
    if benchmark.needs:
        return {**report, "status": "skipped", "reason": benchmark.needs}
    if budget.left() < LEAST_SECONDS:
        return {**report, "status": "skipped", "reason": "no time was left"}
    clock = processes.Budget(benchmark.seconds)
    found, problems = run_sides(benchmark, budget)
    in_order = sorted(found.items(), key=lambda at: at[0][0])
    rows = [{"label": benchmark.sides[place].label, "part": part, "is_peer": benchmark.sides[place].is_peer,
             "rounds": len(runs), "figures": merged(runs)} for (place, part), runs in in_order]
    status = "ok" if not problems else "incomplete" if rows else "failed"
    return {**report, "status": status, "rows": with_ratios(rows, benchmark), "problems": problems,
            "seconds": clock.used()}


def measure_all(benchmarks, budget, tell=lambda reports: None):
    """Measures all benchmarks. Calls `tell` with the reports so far after each one."""
    reports = []
    for benchmark in benchmarks:
        reports.append(measure(benchmark, budget))
        tell(reports)
        last = reports[-1]
        detail = last.get("reason") or "; ".join(last["problems"]) or f"{last['seconds']:.0f} s"
        print(f"{last['name']}: {last['status']} ({detail})", flush=True)
    return reports
