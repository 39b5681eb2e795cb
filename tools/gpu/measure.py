"""Runs benchmarks. Their programs alternate in rounds, and each may use the time that its benchmark has left. Every
benchmark has its first round before any has its second, so that a short run covers as much as possible."""
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


class Measurement:
    """The rounds of one benchmark, and the report on those that have ended."""

    def __init__(self, benchmark):
        self.benchmark, self.used = benchmark, 0.0
        self.found, self.problems = {}, []  # {(side's number, part): [figures of each round]}
        self.took = {}                      # durations of the sides that have completed a round
        self.reason = benchmark.needs       # why it was skipped

    def run_round(self, number, budget):
        """Runs each side once. A side runs again only if it has completed a round and its last duration fits in the
        time that is left."""
        if number == 0 and not self.reason and budget.left() < LEAST_SECONDS:
            self.reason = "no time was left"
        if self.reason or number >= self.benchmark.rounds:
            return
        clock = processes.Budget(self.benchmark.seconds - self.used)
        for place, side in enumerate(self.benchmark.sides):
            seconds = min(clock.left(), budget.left())
            if number > 0 and (place not in self.took or seconds < ROOM * self.took[place]):
                continue
            if number == 0 and seconds < LEAST_SECONDS:
                self.problems.append(f"{side.label}: no time was left")
                continue
            self.run_side(place, side, seconds)
        self.used += clock.used()

    def run_side(self, place, side, seconds):
        clock = processes.Budget(seconds)
        self.took.pop(place, None)
        try:
            for part, figures in side.run(seconds):
                self.found.setdefault((place, part), []).append(figures)
            self.took[place] = clock.used()
        except Failed as error:
            self.problems.append(f"{side.label}: {error}")
        except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
            self.problems.append(f"{side.label}: its figures cannot be read: {type(error).__name__}: {error}")

    def report(self):
        head = {"name": self.benchmark.name, "title": self.benchmark.title, "seconds": self.used}
        if self.reason:
            return {**head, "status": "skipped", "reason": self.reason, "rows": [], "problems": []}
        in_order = sorted(self.found.items(), key=lambda at: at[0][0])
        rows = [{"label": self.benchmark.sides[place].label, "part": part, "is_peer": self.benchmark.sides[place].is_peer,
                 "rounds": len(runs), "figures": merged(runs)} for (place, part), runs in in_order]
        status = "ok" if not self.problems else "incomplete" if rows else "failed"
        return {**head, "status": status, "rows": with_ratios(rows, self.benchmark), "problems": self.problems}


def measure_all(benchmarks, budget, tell=lambda reports: None):
    """Measures all benchmarks: first one round of each, then further rounds while there is time. Calls `tell` with the
    reports so far after each round of a benchmark. Returns the reports."""
    measurements, begun = [Measurement(benchmark) for benchmark in benchmarks], []
    for number in range(max((benchmark.rounds for benchmark in benchmarks), default=0)):
        for measurement in measurements:
            measurement.run_round(number, budget)
            if number == 0:
                begun.append(measurement)
                last = measurement.report()
                detail = last.get("reason") or "; ".join(last["problems"]) or f"{last['seconds']:.0f} s"
                print(f"{last['name']}: {last['status']} ({detail})", flush=True)
            tell([each.report() for each in begun])
    return [each.report() for each in measurements]
