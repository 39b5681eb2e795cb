#!/usr/bin/env python3
"""Counts what a reader of the project has to open, and compares the counts with limits.

Usage: measure_house.py [ROOT] [--markdown | --check FILE | --write FILE]
       (default: a table of the counts of the project that this file belongs to)

  * Product files are the sources and headers of lockstep/. Tests are those of tests/, with scripts.
  * A user of a header is another file of lockstep/ that includes it. The source of the same name in the same folder is
    no user, because header and source are one module. A header with a single user could be a part of that user.
  * Installed headers are those of lockstep/public_headers.txt and the headers that they include.
  * PATHS lists the sources that a reader opens one after the other to follow a call. They need the headers that these
    sources include directly; the headers reached are all that are included by them in turn.

--check FILE prints a line for each count that is worse than its limit in the JSON file, and exits with 1 if there is
one. --write FILE writes the counts of today as limits: use it after a change that has made one of them better.
"""
import argparse
import json
import pathlib
import re
import statistics
import sys

sys.dont_write_bytecode = True
from check_layers import COUNTED, SUFFIXES, TREES  # noqa: E402
from public_headers import INCLUDE, public_headers, reached_from  # noqa: E402

SHORT = 40  # lines of a header
# Each path as (source, what it defines), in the order of the calls: each definition is called from a source that is
# listed earlier. A definition that moves to another source makes this program fail, so that the lists stay true.
PATHS = {
    # ProcessGroup::all_reduce() of a float32 tensor in host memory, over the backend shm and without debug options.
    "an all-reduce on one host": [
        ("lockstep/comm/group/process_group.cpp", "ProcessGroup::all_reduce("),
        ("lockstep/comm/group/prepare.cpp", "Prepare::all_reduce("),  # checks the tensor
        ("lockstep/comm/group/group_impl.cpp", "ProcessGroup::Impl::run("),  # numbers the call
        ("lockstep/comm/backends/shm/shm_backend.cpp", "class ShmBackend"),
        ("lockstep/comm/backends/shm/engine.cpp", "Engine::run("),
        ("lockstep/comm/backends/shm/engine_state.cpp", "EngineState::advance("),
        ("lockstep/comm/backends/shm/chunk_pipeline.cpp", "ChunkPipeline::advance("),
        ("lockstep/comm/backends/shm/chunk.cpp", "ChunkStages::work("),
        ("lockstep/comm/kernels/reduce.cpp", "reduce("),
        ("lockstep/comm/backends/shm/waiter.cpp", "Waiter::wait("),  # called by Engine::run() if another rank is late
    ],
    # `lockstep train mnist` with the default options, which trains in one process, up to the step's forward and backward.
    "main() to the first step": [
        ("lockstep/cli/main.cpp", "main("),
        ("lockstep/cli/commands.cpp", "run_lockstep("),
        ("lockstep/cli/program.cpp", "run_program("),
        ("lockstep/cli/train/train.cpp", "add_train_command("),
        ("lockstep/cli/train/train_options.cpp", "add_train_options("),
        ("lockstep/cli/train/train_settings.cpp", "resolve("),
        ("lockstep/cli/train/train_recipe.cpp", "resolve_recipe("),
        ("lockstep/recipes/recipe.cpp", "find_recipe("),
        ("lockstep/recipes/mnist.cpp", "mnist_recipe("),
        ("lockstep/cli/train/train_strategy.cpp", "resolve_strategy("),
        ("lockstep/cli/train/train_data.cpp", "load_recipe_data("),
        ("lockstep/cli/train/train_rank.cpp", "train_rank("),
        ("lockstep/comm/group/init.cpp", "init_process_group("),
        ("lockstep/train/strategies/strategy.cpp", "make_strategy("),
        ("lockstep/train/trainer.cpp", "Trainer::fit_any("),
        ("lockstep/train/training_run.cpp", "TrainingRun::run("),
        ("lockstep/train/training_run_setup.cpp", "TrainingRun::prepare("),
        ("lockstep/train/training_run_step.cpp", "TrainingRun::train_step("),
        ("lockstep/train/strategies/replica_strategy.cpp", "ReplicaStrategy::step("),
    ],
}
# The counts that have a limit, with the name of each in the file of limits.
LIMITED = {
    "product_files": "product files",
    "median_header_lines": "median of the lines of a header",
    "single_user_headers": "headers with a single user",
    "short_headers_percent": f"headers below {SHORT} lines, in percent",
    "installed_headers": "installed headers",
}
# A low median means that modules are cut into pieces. All other counts should be low.
SHOULD_BE_HIGH = {"median_header_lines"}


def plain(number):
    """The number as an integer if it is one, else with one decimal."""
    return int(number) if number == int(number) else round(number, 1)


def is_header(name):
    return name.endswith((".h", ".cuh"))


def module_of(name):
    """The path without suffix, which a header and its own source share."""
    return pathlib.PurePath(name).with_suffix("")


def read_sources(root, tree, suffixes):
    """Returns {path relative to `root`: text} for the files below the folder `tree`."""
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
            for path in (root / tree).rglob("*") if path.suffix in suffixes}


def lines_in(texts):
    return sum(len(text.splitlines()) for text in texts)


def users_of_headers(sources, headers):
    """Returns {header: the files among `sources` that include it, except its own source}."""
    users = {header: set() for header in headers}
    for name, text in sources.items():
        for header in INCLUDE.findall(text):
            if header in users and module_of(name) != module_of(header):
                users[header].add(name)
    return users


def is_used_inside_its_folder(header, users):
    folder = pathlib.PurePath(header).parent
    return bool(users) and all(pathlib.PurePath(user).parent == folder for user in users)


def mistakes_in_paths(product):
    """Yields a line for each source of PATHS that no longer holds the definition for which it is listed."""
    for call, steps in PATHS.items():
        for source, name in steps:
            # Definitions begin in the first column. Calls are indented.
            if source not in product:
                wrong = "does not exist"
            elif not re.search(rf"^(?![\s/#]).*(?<!\w){re.escape(name)}", product[source], re.MULTILINE):
                wrong = f"does not define {name.removesuffix('(')}"
            else:
                continue
            yield (f"{source} {wrong}: in PATHS of tools/measure_house.py, \"{call}\" must list the source that "
                   f"defines {name.removesuffix('(')}")


def counts_of(root, product):
    """Returns {what is counted: its number} for the project in `root`, whose files in lockstep/ are `product`."""
    tests = read_sources(root, "tests", COUNTED)
    others = {name: text for tree in (*TREES, "python") if tree != "lockstep"
              for name, text in read_sources(root, tree, SUFFIXES).items()}
    headers = [name for name in product if is_header(name)]
    lengths = [lines_in([product[name]]) for name in headers]
    users, all_users = users_of_headers(product, headers), users_of_headers({**product, **others}, headers)
    single = [header for header in headers if len(users[header]) == 1]
    counts = {
        LIMITED["product_files"]: len(product),
        "product lines": lines_in(product.values()),
        "test files": len(tests),
        "test lines": lines_in(tests.values()),
        "words of docs/": sum(len(text.split()) for text in read_sources(root, "docs", {".md"}).values()),
        "headers": len(headers),
        LIMITED["median_header_lines"]: plain(statistics.median(lengths)),
        LIMITED["short_headers_percent"]: plain(100 * sum(length < SHORT for length in lengths) / len(lengths)),
        LIMITED["single_user_headers"]: len(single),
        "headers with a single user, and none outside lockstep/":
            sum(len(all_users[header]) == 1 for header in single),
        "headers used only inside their folder":
            sum(is_used_inside_its_folder(header, users[header]) for header in headers),
        LIMITED["installed_headers"]: len(public_headers(root)),
    }
    for call, steps in PATHS.items():
        direct = {header for source, _ in steps for header in INCLUDE.findall(product[source])}
        counts[f"{call}: sources"] = len(steps)
        counts[f"{call}: headers that these include directly"] = len(direct)
        counts[f"{call}: headers reached"] = len(reached_from(root, direct))
    return counts


def table(counts, markdown):
    if markdown:
        rows = [f"| {what} | {number} |" for what, number in counts.items()]
        return "\n".join(["| count | number |", "|---|---:|", *rows])
    return "\n".join(f"{number:>8}  {what}" for what, number in counts.items())


def read_limits(file):
    try:
        limits = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: cannot read limits from {file}: {error}") from None
    if not isinstance(limits, dict) or set(limits) != set(LIMITED) or any(
            type(limit) not in (int, float) for limit in limits.values()):
        raise SystemExit(f"error: {file} must have a number for each of {', '.join(LIMITED)}, and nothing else")
    return limits


def worse(counts, limits):
    """Yields a line for each count that is worse than its limit."""
    for name, what in LIMITED.items():
        high = name in SHOULD_BE_HIGH
        if counts[what] < limits[name] if high else counts[what] > limits[name]:
            yield f"{what}: {counts[what]}, of at {'least' if high else 'most'} {limits[name]} ({name})"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent,
                        help="folder of the project")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    action.add_argument("--check", metavar="FILE", help="compare the counts with the limits in FILE")
    action.add_argument("--write", metavar="FILE", help="write the counts of today as limits to FILE")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    product = read_sources(arguments.root, "lockstep", SUFFIXES)
    if not any(map(is_header, product)):
        raise SystemExit(f"error: no headers under {arguments.root / 'lockstep'}")
    if mistakes := list(mistakes_in_paths(product)):
        print("\n".join(mistakes))
        raise SystemExit(f"error: {len(mistakes)} source{'s' if len(mistakes) > 1 else ''} of a listed path moved")
    counts = counts_of(arguments.root, product)
    if arguments.write:
        limits = {name: counts[what] for name, what in LIMITED.items()}
        pathlib.Path(arguments.write).write_text(json.dumps(limits, indent=2) + "\n", encoding="utf-8")
    elif arguments.check:
        failures = list(worse(counts, read_limits(arguments.check)))
        if failures:
            print("\n".join(failures))
            raise SystemExit(f"error: {len(failures)} count{'s' if len(failures) > 1 else ''} worse than allowed: put "
                             f"small headers into their users, or justify a new limit in {arguments.check}")
        print(f"house: {len(LIMITED)} counts within their limits")
    else:
        print(table(counts, arguments.markdown))


if __name__ == "__main__":
    main()
