"""Lockstep's communication as a backend of torch.distributed, for ranks on one host's CPU.

    import lockstep_c10d
    torch.distributed.init_process_group("lockstep")

All that torch.distributed offers works as with "gloo": collectives, point-to-point, groups,
DistributedDataParallel. Between processes of one host data goes through shared memory.
"""
import atexit

import torch.distributed as dist

__all__ = []


def _create(options, _):
    from lockstep_c10d import _C  # here: a program that does not use it need not load it

    global _loaded
    if not _loaded:
        atexit.register(_C.shut_down_all)  # futures must not call into an interpreter that is gone
        _loaded = True
    rank = options.group_rank
    return _C.create(options.store, rank, options.group_size, options.global_ranks_in_group[rank],
                     options.timeout.total_seconds())


_loaded = False
if dist.is_available():
    dist.Backend.register_backend("lockstep", _create, extended_api=True, devices=["cpu"])
