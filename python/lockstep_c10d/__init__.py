"""Lockstep's communication as a backend of torch.distributed, for ranks on one host's CPU.

    import lockstep_c10d
    torch.distributed.init_process_group("lockstep")

Collectives, point-to-point, groups and DistributedDataParallel work as with "gloo"; python/README.md lists
the differences. Processes of one host exchange data through shared memory.
"""
import atexit

import torch.distributed as dist

__all__ = []


def _create(options, _):
    from lockstep_c10d import _C  # imported here, so that only programs that use it load it

    global _loaded
    if not _loaded:
        atexit.register(_C.shut_down_all)  # futures must not call into an interpreter that is gone
        _loaded = True
    rank, members = options.group_rank, options.global_ranks_in_group  # empty: all ranks
    return _C.create(options.store, rank, options.group_size, members[rank] if members else rank,
                     options.timeout.total_seconds())


def _register():
    """Also called by PyTorch when it is imported, if this package is installed."""
    if dist.is_available() and not hasattr(dist.Backend, "LOCKSTEP"):
        dist.Backend.register_backend("lockstep", _create, extended_api=True, devices=["cpu"])


_loaded = False
_register()
