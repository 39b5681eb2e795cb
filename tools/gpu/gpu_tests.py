"""Runs the kit's test programs, each test in its own process (tests/support/suite_main.cpp), and counts the
results."""
import collections
import re

import processes

# result: "passed", "failed", "skipped", "crashed", "hung" or "not run"
Test = collections.namedtuple("Test", "program name result seconds message")
RESULTS = ("passed", "failed", "crashed", "hung", "not run", "skipped")
BAD = ("failed", "crashed", "hung", "not run")

BEGIN = re.compile(r"\[ RUN      \] (\S+)")
END = re.compile(r"\[\s*(OK|FAILED|SKIPPED)\s*\] (\S+?),? (?:.*)\((\d+) ms\)$")
# An unfinished line of the test's output may precede these lines and "[ RUN".
KILLED = re.compile(r"(\S+) was killed by signal (\d+)$")
TOO_LONG = re.compile(r"(\S+) ran longer than its limit of (\d+) s$")
LISTING_SECONDS = 60
SHARE_OF_FIRST = 0.75  # share of the time for the first program, which has the most important tests
SHARE_OF_ONE = 0.5  # share of the remaining time for each program after it but the last one
MOST_LINES = 100    # of one test's output
WORDS = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}


def names_of(listing):
    """Returns the tests that --gtest_list_tests lists, without disabled ones."""
    names, suite = [], ""
    for line in listing.splitlines():
        line = line.split("#")[0].rstrip()
        if re.fullmatch(r"\S+\.", line):
            suite = line
        elif re.fullmatch(r"  \S+", line) and suite and not line.strip().startswith("DISABLED_"):
            names.append(suite + line.strip())
    return names


def message_of(result, lines):
    said = [line.strip() for line in lines if line.strip()]
    if result == "skipped":
        # The file and line precede the reason.
        reasons = [line for line in said if not re.search(r"\.\w+:\d+: Skipped$", line)]
        return reasons[0] if reasons else ""
    return " / ".join(said[:4])[:400]


def tests_in(program, output):
    """Returns ({name: Test} for the tests in the output's lines, the name of the test that has not ended)."""
    tests, name, lines = {}, None, []

    def about(match):
        return name if name and match[1].endswith(name) else match[1]

    for line in output:
        begin, end = BEGIN.search(line), END.search(line)
        killed, too_long = KILLED.search(line), TOO_LONG.search(line)
        if begin:
            if name and name != begin[1]:
                said = message_of("crashed", lines)
                tests[name] = Test(program, name, "crashed", 0.0, "it ended without a result" + (said and f": {said}"))
            name, lines = begin[1], []
        elif end:
            word, ended, milliseconds = end.groups()
            message = "" if word == "OK" else message_of(WORDS[word], lines)
            tests[ended] = Test(program, ended, WORDS[word], int(milliseconds) / 1000, message)
            name = None
        elif killed:
            ended = about(killed)
            tests[ended] = Test(program, ended, "crashed", 0.0, f"killed by signal {killed[2]}")
            name = None
        elif too_long:
            ended = about(too_long)
            tests[ended] = Test(program, ended, "hung", float(too_long[2]), f"longer than {too_long[2]} s")
            name = None
        elif name and len(lines) < MOST_LINES:
            lines.append(line)
    return tests, name


def run_program(program, seconds, test_limit, log, environment):
    """Runs one program and returns a Test for each of its tests."""
    clock, limit = processes.Budget(seconds), min(LISTING_SECONDS, seconds)
    listed = processes.run([program, "--gtest_list_tests"], limit, log, environment)
    names = names_of(listed.output)
    if listed.status != "ok":
        return [Test(program.name, "(all)", "not run", 0.0, processes.why(listed, limit))]
    if not names:
        return [Test(program.name, "(all)", "not run", 0.0, "it lists no tests")]
    seconds = clock.left()
    outcome = processes.run([program, "--suite=*", f"--limit={test_limit}", "--gtest_color=no"], seconds, log, environment)
    tests, running = tests_in(program.name, processes.lines_of(outcome, log))
    if running:
        result = "hung" if outcome.status == "hung" else "crashed"
        tests[running] = Test(program.name, running, result, 0.0, processes.why(outcome, seconds))
    missing = f"no time was left: {processes.why(outcome, seconds)}" if outcome.status == "hung" else \
        f"the program had ended: {processes.why(outcome, seconds)}"
    return [tests.get(name, Test(program.name, name, "not run", 0.0, missing)) for name in names]


def run_all(programs, seconds, test_limit, log, environment, tell=lambda tests: None):
    """Runs all tests of all programs, even if some fail. Calls `tell` with the results so far after each program."""
    budget, tests = processes.Budget(seconds), []
    for number, program in enumerate(programs, 1):
        left = budget.left() * (1 if number == len(programs) else SHARE_OF_FIRST if number == 1 else SHARE_OF_ONE)
        if left < 1:
            tests.append(Test(program.name, "(all)", "not run", 0.0, f"the tests' {seconds:.0f} s were used up"))
            continue
        done = run_program(program, left, test_limit, log, environment)
        tests += done
        print(f"{program.name}: {summary(done)}", flush=True)
        tell(tests)
    return tests


def summary(tests):
    counts = collections.Counter(test.result for test in tests)
    return ", ".join(f"{counts[result]} {result}" for result in RESULTS if counts[result]) or "no tests"
