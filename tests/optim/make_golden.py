"""Writes small parameters after twenty steps of torch.optim, as text. Run by hand when a case is added:

    python tests/optim/make_golden.py > tests/optim/golden_optimizers.txt

Parameters and gradients are formulas, which update_rule_test.cpp and optimizer_test.cpp use too. Each line
has a case's name and the values of all parameters after the last step, one after another.
"""
import math

import torch

SHAPES = [(7, 3), (5,), (2, 2, 3, 3), ()]
STEPS = 20


def start(p):
    count = math.prod(SHAPES[p])
    return torch.tensor([math.sin(0.7 * i + p) for i in range(count)],
                        dtype=torch.float64).float().view(SHAPES[p])


def gradient(p, step):
    count = math.prod(SHAPES[p])
    return torch.tensor([math.cos(0.3 * (i + 1) * step + p) for i in range(count)],
                        dtype=torch.float64).float().view(SHAPES[p])


def parameters():
    return [start(p).requires_grad_() for p in range(len(SHAPES))]


def skips(p, step):
    """In the cases that skip, parameter 1 has no gradient in the first two steps and in one later step."""
    return p == 1 and step in (1, 2, 9)


def set_gradients(tensors, step, skipping=False):
    for p, tensor in enumerate(tensors):
        tensor.grad = None if skipping and skips(p, step) else gradient(p, step)


def write(name, tensors):
    values = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    print(name, " ".join(f"{value:.9g}" for value in values.tolist()))


def write_steps(name, make, skipping=False):
    tensors = parameters()
    optimizer = make(tensors)
    for step in range(1, STEPS + 1):
        set_gradients(tensors, step, skipping)
        optimizer.step()
    write(name, tensors)


def write_capturable(name, make):
    """The learning rate is a tensor that changes with each step, as in the replays of a graph."""
    rate = torch.tensor(0.0, dtype=torch.float64)
    tensors = parameters()
    optimizer = make(tensors, rate)
    for step in range(1, STEPS + 1):
        rate.fill_(0.02 / step)
        set_gradients(tensors, step)
        optimizer.step()
    write(name, tensors)


def write_clipped(name, max_norm, norm_type):
    tensors = parameters()
    set_gradients(tensors, 3)
    norm = torch.nn.utils.clip_grad_norm_(tensors, max_norm, norm_type)
    write(name, [norm] + [tensor.grad for tensor in tensors])


def write_scaled():
    """Steps 4 and 5 overflow. The scale grows after every 3 steps without overflow."""
    tensors = parameters()
    optimizer = torch.optim.SGD(tensors, 0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    scales = []
    for step in range(1, STEPS + 1):
        set_gradients(tensors, step)
        for tensor in tensors:
            tensor.grad *= scaler.scale(torch.ones(())).item()
        if step in (4, 5):
            tensors[2].grad.view(-1)[7] = math.inf if step == 4 else math.nan
        scaler.step(optimizer)
        scaler.update()
        scales.append(torch.tensor(scaler.get_scale()))
    write("scaler", tensors)
    write("scaler_scales", scales)


def main():
    optim = torch.optim
    write_steps("sgd", lambda p: optim.SGD(p, 0.1))
    write_steps("sgd_momentum", lambda p: optim.SGD(p, 0.05, momentum=0.9))
    write_steps("sgd_momentum_decay", lambda p: optim.SGD(p, 0.05, momentum=0.5, weight_decay=0.01))
    write_steps("sgd_nesterov",
                lambda p: optim.SGD(p, 0.02, momentum=0.9, weight_decay=0.01, nesterov=True))
    write_steps("sgd_decay", lambda p: optim.SGD(p, 0.1, weight_decay=0.1))
    write_steps("adam", lambda p: optim.Adam(p))
    write_steps("adam_options",
                lambda p: optim.Adam(p, 0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.05))
    write_steps("adam_amsgrad", lambda p: optim.Adam(p, 0.01, betas=(0.5, 0.6), amsgrad=True))
    write_steps("adamw", lambda p: optim.AdamW(p))
    write_steps("adamw_options",
                lambda p: optim.AdamW(p, 0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3))
    write_steps("adamw_amsgrad",
                lambda p: optim.AdamW(p, 0.01, betas=(0.5, 0.6), amsgrad=True))
    write_steps("sgd_skipping", lambda p: optim.SGD(p, 0.05, momentum=0.9), skipping=True)
    write_steps("adam_skipping", lambda p: optim.Adam(p, 0.02), skipping=True)
    write_capturable("adam_capturable", lambda p, rate: optim.Adam(
        p, rate, amsgrad=True, fused=True, capturable=True))
    write_capturable("adamw_capturable", lambda p, rate: optim.AdamW(
        p, rate, weight_decay=0.3, fused=True, capturable=True))
    write_capturable("sgd_capturable", lambda p, rate: optim.SGD(
        p, rate, momentum=0.9, weight_decay=0.01, nesterov=True, fused=True))
    write_clipped("clip_2", 1.5, 2.0)
    write_clipped("clip_1", 1.5, 1.0)
    write_clipped("clip_inf", 0.5, math.inf)
    write_clipped("clip_3", 0.5, 3.0)
    write_clipped("clip_0", 0.5, 0.0)
    write_clipped("clip_unneeded", 1e3, 2.0)
    write_scaled()


if __name__ == "__main__":
    main()
