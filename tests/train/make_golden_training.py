"""Writes PyTorch's results over 100 steps as golden text: the learning rates of its schedules, and the weights after
training with clipping and averaging. Run by hand when a case is added:

    python tests/train/make_golden_training.py > tests/train/golden_training.txt

Each line is a name and its numbers, exact to the last bit.
"""
import itertools
import math
import warnings

import torch
from torch.optim import lr_scheduler as schedules
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS = 100
STEPS_PER_EPOCH = 10


def write(name, numbers):
    print(name, *(repr(float(number)) for number in numbers))


def rates(make, lr=0.5, per_epoch=False):
    """The learning rate of each step. Schedules with `per_epoch` advance after every tenth step."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler = make(optimizer)
    for step in range(STEPS):
        yield optimizer.param_groups[0]["lr"]
        optimizer.step()
        if not per_epoch or (step + 1) % STEPS_PER_EPOCH == 0:
            scheduler.step()


def momenta(make, optimizer, name):
    """The momentum of each step. `name` is "momentum", or "betas" for the first of the two."""
    scheduler = make(optimizer)
    for _ in range(STEPS):
        value = optimizer.param_groups[0][name]
        yield value[0] if name == "betas" else value
        optimizer.step()
        scheduler.step()


def after_warmup(steps, make):
    """Puts a linear warm-up of `steps` steps before the schedule of `make`."""
    def both(optimizer):
        rise = schedules.LinearLR(optimizer, start_factor=1 / steps, end_factor=1.0, total_iters=steps - 1)
        return schedules.SequentialLR(optimizer, [rise, make(optimizer)], milestones=[steps])
    return both


def after_ramp(steps, make, lr=0.5):
    """The learning rates of a linear ramp of `steps` steps to `lr`, followed by those of the schedule of `make`."""
    yield from (lr * (step + 1) / steps for step in range(steps))
    yield from itertools.islice(rates(make, lr), STEPS - steps)


def momenta_after_ramp(steps, length, maximum=0.95):
    """The momentum of `steps` steps before a one-cycle schedule of `length` steps, and of that schedule."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5, momentum=0.9)
    yield from (maximum for _ in range(steps))
    scheduler = schedules.OneCycleLR(optimizer, max_lr=0.5, total_steps=length, max_momentum=maximum)
    for step in range(length):
        yield optimizer.param_groups[0]["momentum"]
        optimizer.step()
        if step + 1 < length:
            scheduler.step()


def watched(step):
    """A value that first falls, then stays constant and jumps."""
    return 2.0 / (1 + min(step, 30)) + 0.01 * math.sin(step) + (0.5 if step % 17 == 16 else 0.0)


def plateau_rates(sign=1.0, **options):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    scheduler = schedules.ReduceLROnPlateau(optimizer, **options)
    for step in range(STEPS):
        yield optimizer.param_groups[0]["lr"]
        scheduler.step(sign * watched(step))


def train(clip=lambda parameters: None, decay=None,
          make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9), make_schedule=None):
    """The weights, or their moving averages, after every tenth step."""
    net = torch.nn.Linear(3, 2).double()
    with torch.no_grad():
        net.weight.copy_(torch.arange(6, dtype=torch.float64).mul(0.7).sin().view(2, 3))
        net.bias.copy_(torch.tensor([0.25, -0.5], dtype=torch.float64))
    averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(decay)) if decay is not None else None
    optimizer = make_optimizer(net.parameters())
    schedule = make_schedule(optimizer) if make_schedule is not None else None
    for step in range(STEPS):
        x = (torch.arange(12, dtype=torch.float64) + step).mul(0.3).sin().view(4, 3)
        y = (torch.arange(8, dtype=torch.float64) - step).mul(0.2).cos().view(4, 2)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).mul(10).backward()
        clip(list(net.parameters()))
        optimizer.step()
        if schedule is not None:
            schedule.step()
        if averaged is not None:
            averaged.update_parameters(net)
        if step % 10 == 9:
            shown = net if averaged is None else averaged.module
            yield from shown.weight.detach().flatten()
            yield from shown.bias.detach()


warnings.simplefilter("ignore")  # SequentialLR warns about its own calls
write("constant", rates(lambda o: schedules.ConstantLR(o, factor=1.0)))
write("step", rates(lambda o: schedules.StepLR(o, step_size=3, gamma=0.3), per_epoch=True))
write("multi-step", rates(lambda o: schedules.MultiStepLR(o, milestones=[2, 5, 6], gamma=0.2), per_epoch=True))
write("cosine", rates(lambda o: schedules.CosineAnnealingLR(o, T_max=STEPS, eta_min=0.05)))
write("warm-up and cosine", rates(after_warmup(20, lambda o: schedules.CosineAnnealingLR(o, T_max=STEPS - 20))))
write("warm-up and constant", rates(after_warmup(5, lambda o: schedules.ConstantLR(o, factor=1.0))))
write("one-cycle", rates(lambda o: schedules.OneCycleLR(o, max_lr=0.5, total_steps=STEPS, cycle_momentum=False)))
write("one-cycle, linear", rates(lambda o: schedules.OneCycleLR(
    o, max_lr=0.5, total_steps=STEPS, pct_start=0.25, anneal_strategy="linear", div_factor=10.0, final_div_factor=100.0,
    cycle_momentum=False)))
write("plateau", plateau_rates(patience=4, factor=0.5))
write("plateau, absolute", plateau_rates(patience=2, factor=0.3, threshold=0.05, threshold_mode="abs", cooldown=6, min_lr=0.02))
write("plateau, rising", plateau_rates(sign=-1.0, mode="max", patience=3, factor=0.7, threshold=0.01, eps=0.01))
write("clipped by norm", train(lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, 0.7)))
write("clipped by value", train(lambda parameters: torch.nn.utils.clip_grad_value_(parameters, 0.3)))
write("averaged", train(decay=0.9))
write("averaged slowly", train(decay=0.999))
write("one-cycle momentum", momenta(
    lambda o: schedules.OneCycleLR(o, max_lr=0.5, total_steps=STEPS),
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5, momentum=0.9), "momentum"))
write("one-cycle momentum, linear", momenta(
    lambda o: schedules.OneCycleLR(o, max_lr=0.5, total_steps=STEPS, pct_start=0.25, anneal_strategy="linear",
                                   base_momentum=0.7, max_momentum=0.9),
    torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=0.5), "betas"))
write("trained by one-cycle with sgd", train(
    make_optimizer=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    make_schedule=lambda o: schedules.OneCycleLR(o, max_lr=0.05, total_steps=STEPS)))
write("trained by one-cycle with adam", train(
    make_optimizer=lambda p: torch.optim.Adam(p, lr=0.05),
    make_schedule=lambda o: schedules.OneCycleLR(o, max_lr=0.05, total_steps=STEPS)))
write("step every tenth of an epoch", rates(lambda o: schedules.StepLR(o, step_size=1, gamma=0.97)))
write("step after three steps", rates(lambda o: schedules.StepLR(o, step_size=3, gamma=0.9)))
write("step after seven steps", rates(lambda o: schedules.StepLR(o, step_size=7, gamma=0.5)))
write("multi-step within epochs", rates(lambda o: schedules.MultiStepLR(o, milestones=[3, 7, 11, 23, 57], gamma=0.3)))
write("warm-up and one-cycle", after_ramp(15, lambda o: schedules.OneCycleLR(
    o, max_lr=0.5, total_steps=STEPS - 15, cycle_momentum=False)))
write("warm-up and one-cycle momentum", momenta_after_ramp(15, STEPS - 15))
write("long warm-up and one-cycle momentum", momenta_after_ramp(97, 3))
