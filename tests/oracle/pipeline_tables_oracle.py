"""Compares our pipelines' tables with the action lists of Python's torch.distributed.pipelining.

Usage: pipeline_tables_oracle.py LOCKSTEP

LOCKSTEP is the program, whose `explain pipeline --csv` writes a table: one line per worker, with cells of stage, kind
(F, B, I or W) and micro-batch. PyTorch's lists are those that its schedules make before they run. That needs no
process group, only stages that know their positions.

Requirements, for every number of workers and micro-batches that both accept
    gpipe, 1f1b, zbv if there are enough micro-batches to fill the pipeline, and interleaved if they are a multiple of
        the workers: the same lists of actions.
    interleaved otherwise, where PyTorch makes larger groups of micro-batches: the same order within each stage.
    zb-h1, compared with PyTorch's ScheduleInterleavedZeroBubble with one stage per worker, which holds as few
        micro-batches as 1F1B, and zbv otherwise, where PyTorch uses the beginning of a longer list: our bubble is no
        larger, and none of our workers holds more than their first worker.
Where lists differ, both are replayed with F, I and W taking 1, B taking 2, and messages taking no time.

Exits with 0, with 1 and a line for each disagreement, or with 77 (skipped) and the reason.
"""
import collections
import logging
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import torch
    from torch.distributed.pipelining.schedules import get_schedule_class
except ImportError as error:
    print(f"skipped: {error}; `make test` installs what is missing into .deps/venv")
    sys.exit(77)

SIZES = [(2, 1), (2, 6), (3, 4), (3, 6), (4, 6), (4, 8), (8, 16)]  # workers, micro-batches
COST = {"F": 1, "B": 2, "I": 1, "W": 1}
CELL = re.compile(r"(\d+)(F|B|I|W)(\d+)")

Action = collections.namedtuple("Action", "stage kind micro_batch")


def action_of(text):
    found = CELL.fullmatch(text.strip())
    return Action(int(found[1]), found[2], int(found[3])) if found else None


class PlacedStage:
    """The parts of a PipelineStage that PyTorch's schedules use before they run."""
    has_backward, device, group, group_rank = True, "cpu", None, 0

    def __init__(self, index, stages, workers):
        self.stage_index, self.num_stages, self.group_size = index, stages, workers
        self.is_first, self.is_last = index == 0, index == stages - 1
        self.submod = torch.nn.Identity()


def theirs(name, stages_of_first, stages, workers, micro_batches):
    """Returns PyTorch's lists, or None if it rejects these numbers."""
    own = [PlacedStage(index, stages, workers) for index in stages_of_first]
    try:
        schedule = get_schedule_class(name)(own if name not in ("GPipe", "1F1B") else own[0], micro_batches,
                                            loss_fn=lambda output, target: output)
    except ValueError:
        return None
    lists = [[action_of(str(action)) for action in schedule.pipeline_order[rank] if action is not None]
             for rank in range(workers)]
    lists = [[action for action in actions if action] for actions in lists]
    return [forwards_from_0(actions) for actions in lists] if name == "1F1B" else lists


def forwards_from_0(actions):
    """Numbers forwards from 0. The 1F1B list that PyTorch 2.13 keeps for display numbers the last rank's forwards
    from 1, while the code that runs (Schedule1F1B._step_microbatches) counts from 0."""
    forwards = iter(range(len(actions)))
    return [action._replace(micro_batch=next(forwards)) if action.kind == "F" else action for action in actions]


def ours(program, schedule, stages, workers, micro_batches, folder):
    file = pathlib.Path(folder) / "table.csv"
    subprocess.run([program, "explain", "pipeline", "--schedule", schedule, "--stages", str(stages), "--workers",
                    str(workers), "--micro-batches", str(micro_batches), "--csv", str(file)],
                   check=True, stdout=subprocess.DEVNULL, timeout=60)
    return [[action_of(cell) for cell in line.split(",")] for line in file.read_text().splitlines()]


def needs(action, stages, has):
    """The actions that must have ended before `action` begins."""
    stage, kind, i = action
    if kind == "F":
        return [Action(stage - 1, "F", i)] if stage else []
    if kind == "W":
        return [Action(stage, "I", i)]
    needed = [Action(stage, "F", i)]
    if stage + 1 < stages:
        split = Action(stage + 1, "I", i)
        needed.append(split if split in has else Action(stage + 1, "B", i))
    return needed


def bubble(lists, stages):
    """The share of all workers' time in which they do not compute."""
    has = {action for actions in lists for action in actions}
    ended, now, after = {}, [0] * len(lists), [0] * len(lists)
    while len(ended) < len(has):
        before = len(ended)
        for worker, actions in enumerate(lists):
            while after[worker] < len(actions):
                action = actions[after[worker]]
                needed = needs(action, stages, has)
                if any(each not in ended for each in needed):
                    break
                begin = max([now[worker]] + [ended[each] for each in needed])
                ended[action] = now[worker] = begin + COST[action.kind]
                after[worker] += 1
        if len(ended) == before:
            raise SystemExit("error: a table does not come to its end")
    return 1 - sum(COST[action.kind] for action in has) / (max(now) * len(lists))


def most_held(actions):
    """The largest number of activations that a worker holds at once, each from F to B or W."""
    held = peak = 0
    for action in actions:
        held += {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]
        peak = max(peak, held)
    return peak


def by_stage_and_kind(lists):
    """For each stage and kind, the micro-batches in order."""
    orders = collections.defaultdict(list)
    for actions in lists:
        for action in actions:
            orders[action.stage, action.kind].append(action.micro_batch)
    return orders


def first_difference(mine, other):
    for worker, (a, b) in enumerate(zip(mine, other)):
        for place, pair in enumerate(zip(a, b)):
            if pair[0] != pair[1]:
                return f"worker {worker}, action {place}: {''.join(map(str, pair[0]))}, PyTorch " \
                       f"{''.join(map(str, pair[1]))}"
        if len(a) != len(b):
            return f"worker {worker} has {len(a)} actions, PyTorch {len(b)}"
    return None


def compare_case(schedule, mine, other, stages, workers, micro_batches):
    """Returns (what was compared, None or what is wrong)."""
    if schedule == "zb-h1" or schedule == "zbv" and micro_batches < 2 * workers - 1:
        bubbles = bubble(mine, stages), bubble(other, stages)
        if bubbles[0] > bubbles[1] + 1e-9:
            return "bubble", f"bubble {bubbles[0]:.4f}, PyTorch {bubbles[1]:.4f}"
        held = max(map(most_held, mine))
        # A short table of ZB-V holds as many activations as the schedule may, which ends sooner.
        most = 2 * workers if schedule == "zbv" else most_held(other[0])
        wrong = f"a worker holds {held}, expected at most {most}" if held > most else None
        return "bubble and activations", wrong
    if schedule == "interleaved" and micro_batches % workers:
        same = by_stage_and_kind(mine) == by_stage_and_kind(other)
        return "order within stages", None if same else "stages take micro-batches in another order"
    return "lists", first_difference(mine, other)


def cases():
    """Yields (our name, PyTorch's name, stages per worker, stages of the first worker)."""
    for workers, micro_batches in SIZES:
        for schedule, name, each in (("gpipe", "GPipe", 1), ("1f1b", "1F1B", 1), ("zbv", "ZBVZeroBubble", 2),
                                     ("interleaved", "Interleaved1F1B", 2), ("interleaved", "Interleaved1F1B", 3),
                                     ("zb-h1", "InterleavedZeroBubble", 1)):
            stages = workers * each
            of_first = [0, stages - 1] if schedule == "zbv" else range(0, stages, workers)
            yield schedule, name, of_first, stages, workers, micro_batches


def main():
    program, = sys.argv[1:]
    logging.disable(logging.WARNING)
    compared, differences = collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for schedule, name, of_first, stages, workers, micro_batches in cases():
            other = theirs(name, of_first, stages, workers, micro_batches)
            if other is None:
                continue
            mine = ours(program, schedule, stages, workers, micro_batches, folder)
            what, wrong = compare_case(schedule, mine, other, stages, workers, micro_batches)
            compared[schedule, what] += 1
            if wrong:
                differences.append(f"{schedule}, {stages} stages on {workers} workers, {micro_batches} micro-batches: {wrong}")
    for (schedule, what), count in sorted(compared.items()):
        print(f"{schedule}: {what} of {count} tables")
    for line in differences:
        print(line)
    if {schedule for schedule, _ in compared} != {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}:
        raise SystemExit("error: a schedule was compared nowhere; has PyTorch changed?")
    if differences:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
