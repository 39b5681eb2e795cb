"""Checks that each failure soon becomes an exception on every rank, whose single line says what failed."""
from support import *

import signal


def wrong_arguments(rank, world):
    cases = [
        (lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), op=dist.ReduceOp.AVG), ["average", "int32"]),
        (lambda: dist.all_gather_into_tensor(torch.ones(5), torch.ones(3)), ["all_gather"]),
        (lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 1], [2, 2]), ["all_to_all"]),
        (lambda: dist.all_reduce(torch.ones(2 + rank, 3).to_sparse()), ["all_reduce", "sparse", "shape"]),
        (lambda: dist.all_reduce(torch.ones(2, 3, dtype=[torch.float32, torch.float64][rank]).to_sparse()),
         ["all_reduce", "sparse", "type"]),
        (lambda: dist.all_reduce(torch.ones(2, 3).to_sparse(1 + rank)),
         ["all_reduce", f"shape [2, 3] with {1 + rank} sparse dimensions", f"that of rank {1 - rank}"]),
        *((lambda op=op, peer=peer: dist.batch_isend_irecv([dist.P2POp(op, torch.ones(3), peer)]),
           [name, f"peer must be from 0 to {world - 1}, got {peer}"])
          for op, name in ((dist.isend, "send"), (dist.irecv, "recv")) for peer in (-1, world)),
    ]
    for call, texts in cases:
        with raises(ValueError, f"rank {rank}", *texts):
            call()
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # the group is still usable
    assert tensor.eq(world).all()


def wrong_lists(rank, world):
    """Lists that hold a tensor for each device of a rank. All ranks give the same, so nobody waits."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    one, other, whole = torch.ones(3), torch.ones(2), torch.ones(3, dtype=torch.int32)
    of_second = dist.BroadcastOptions()
    of_second.rootTensor = 2
    before_first = dist.BroadcastOptions()
    before_first.rootTensor = -1
    greatest = dist.AllreduceOptions()
    greatest.reduceOp = dist.ReduceOp.MAX
    average = dist.AllreduceOptions()
    average.reduceOp = dist.ReduceOp.AVG
    gather = dist.distributed_c10d.AllgatherOptions()
    cases = [
        (lambda: backend.allreduce([one, other], dist.AllreduceOptions()),
         ["all_reduce: got a", "expected tensors of one shape, type and layout"]),
        (lambda: backend.allreduce([one, whole], dist.AllreduceOptions()), ["of one shape, type and layout"]),
        (lambda: backend.allreduce([one, one.to_sparse()], dist.AllreduceOptions()), ["of one shape, type and layout"]),
        (lambda: backend.allreduce([one.to_sparse(), one], dist.AllreduceOptions()), ["expected sparse tensors of one shape"]),
        (lambda: backend.allreduce([one.to_sparse(), other.to_sparse()], dist.AllreduceOptions()),
         ["expected sparse tensors of one shape"]),
        (lambda: backend.allreduce([one.to_sparse(), whole.to_sparse()], dist.AllreduceOptions()),
         ["expected sparse tensors of one shape and type"]),
        (lambda: backend.allreduce([one.to_sparse()], greatest), ["sparse tensors only works with ReduceOp.SUM"]),
        (lambda: backend.allreduce([one.to_sparse()], average), ["sparse tensors only works with ReduceOp.SUM"]),
        (lambda: backend.broadcast([one, one.clone()], of_second), ["invalid root tensor: 2, expected from 0 to 1"]),
        (lambda: backend.broadcast([one, one.clone()], before_first), ["invalid root tensor: -1, expected from 0 to 1"]),
        (lambda: backend.broadcast([one, other], dist.BroadcastOptions()), ["broadcast: got a", "of one shape"]),
        (lambda: backend.allgather([[one] * world], [one, one], gather), ["got 1 lists of outputs for 2 inputs"]),
        (lambda: backend.allgather([[one] * world] * 2, [one, one], gather),
         [f"got a list of {world} outputs", f"expected {2 * world} of shape [3]"]),
        (lambda: backend.allgather([[other] * (2 * world)] * 2, [one, one], gather), ["outputs of shape [2]"]),
        (lambda: backend.allgather([[whole] * (2 * world)] * 2, [one, one], gather),
         ["all_gather: got outputs of type", "Int", "Float"]),
        (lambda: backend.allgather([], [], gather), ["all_gather: got no tensors, expected at least 1"]),
        (lambda: backend.allgather_coalesced([[one]], [one]), ["all_gather_coalesced: got 1 outputs for 2 inputs"]),
        (lambda: backend.allgather_coalesced([[one, other], [one]], [one, other]),
         ["all_gather_coalesced: got 1 outputs for 2 inputs, expected one for each"]),
        (lambda: backend.reduce_scatter([one], [[one] * world] * 2, dist.ReduceScatterOptions()),
         ["reduce_scatter: got 1 outputs for 2 inputs"]),
        (lambda: backend.reduce_scatter([one, other], [[one] * world] * 2, dist.ReduceScatterOptions()),
         ["reduce_scatter: got 2 tensors, expected 1"]),
        (lambda: backend.reduce([one, one], dist.ReduceOptions()), ["reduce: got 2 tensors, expected 1"]),
        (lambda: backend.send([one, one], 1 - rank, 0), ["send: got 2 tensors, expected 1"]),
        (lambda: backend.recv([one, one], 1 - rank, 0), ["recv: got 2 tensors, expected 1"]),
    ]
    for call, texts in cases:
        with raises(ValueError, *texts):
            call()
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # the group is still usable
    assert tensor.eq(world).all()


def desynchronised(rank, world):
    with raises(dist.DistBackendError, "all_reduce[float32, 4", "broadcast[float32, 4"):
        if rank == 0:
            dist.all_reduce(torch.ones(4))
        else:
            dist.broadcast(torch.ones(4), src=0)


def late(rank, world, how):
    """Rank 1 joins only after rank 0 has given up."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["given up"])
        return 0
    begin = time.monotonic()
    with raises(dist.DistBackendError, "all_reduce[float32, 4", "rank 1", " Timed out "):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        work.wait() if how == "work" else work.get_future().wait()
    store.set("given up", "1")
    return time.monotonic() - begin


def own_deadline(rank, world):
    """A wait with its own deadline fails, and the operation continues."""
    store = dist.distributed_c10d._get_default_store()
    tensor = torch.ones(4)
    if rank == 1:
        store.wait(["waited"])
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 0:
        with raises(dist.DistBackendError, " Timed out waiting 50 ms: rank 0: lockstep:all_reduce is not done yet"):
            work.wait(datetime.timedelta(milliseconds=50))
        store.set("waited", "1")
    work.wait()
    assert tensor.eq(2).all()


def monitored(rank, world, wait_all_ranks):
    """Rank 1 calls only the first barrier.

    dist.monitored_barrier() supports Gloo alone, but the group's own method supports every backend.
    """
    group = dist.group.WORLD
    store = dist.distributed_c10d._get_default_store()
    group.monitored_barrier(datetime.timedelta(seconds=20), wait_all_ranks)
    if rank == 1:
        store.wait(["given up"])
        return
    words = {0: "Ranks 1 failed to pass monitoredBarrier in 500 ms" if wait_all_ranks else
                "Rank 1 failed to pass monitoredBarrier in 500 ms",
             2: "Rank 2 successfully reached monitoredBarrier, but received errors"}
    with raises(dist.DistBackendError, words[rank]):
        group.monitored_barrier(datetime.timedelta(milliseconds=500), wait_all_ranks)
    if rank == 0:
        store.set("given up", "1")


def monitored_alone(rank, world, wait_all_ranks):
    """Only rank 0 calls the barrier. It names all missing ranks if it has waited for all."""
    store = dist.distributed_c10d._get_default_store()
    if rank != 0:
        store.wait(["given up"])
        return
    names = "Ranks 1, 2" if wait_all_ranks else "Rank 1"
    with raises(dist.DistBackendError, f"[Rank 0]: {names} failed to pass monitoredBarrier in 300 ms"):
        dist.group.WORLD.monitored_barrier(datetime.timedelta(milliseconds=300), wait_all_ranks)
    store.set("given up", "1")


def deadline_of_a_call(rank, world):
    """A call with its own timeout fails at it, not at the group's."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["given up"])
        return 0
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(milliseconds=400)
    begin = time.monotonic()
    with raises(dist.DistBackendError, "all_reduce[float32, 4", "rank 1", " Timed out ", "0.4 s"):
        dist.group.WORLD._get_backend(torch.device("cpu")).allreduce([torch.ones(4)], options).wait()
    store.set("given up", "1")
    return time.monotonic() - begin


def monitored_over_gloo(rank, world, meeting):
    """Gloo supports fewer tags than shared memory. Between hosts the store must be a TCPStore.

    Rank 0 hosts it: a store's thread in the process that forks the ranks may hold a lock of the C library
    at that moment, and a child would wait for it for ever.
    """
    os.environ["LOCKSTEP_HOST_ID"] = str(rank)
    meeting = dist.FileStore(meeting, world)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        meeting.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(meeting.get("port")), is_master=False)
    dist.init_process_group("lockstep", store=store, rank=rank, world_size=world)
    dist.group.WORLD.monitored_barrier(datetime.timedelta(seconds=20))
    dist.destroy_process_group()
    meeting.set(f"left {rank}", "")
    if rank == 0:
        meeting.wait([f"left {each}" for each in range(world)])


def monitored_while_one_dies(rank, world):
    """Rank 1 is late but alive; the error must say that rank 2 has died."""
    group = dist.group.WORLD
    store = dist.distributed_c10d._get_default_store()
    group.monitored_barrier(datetime.timedelta(seconds=20))
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        begin = time.monotonic()
        with raises(dist.DistBackendError, "Rank 1 failed to pass monitoredBarrier: ", "rank 2", " died"):
            group.monitored_barrier(datetime.timedelta(seconds=50))
        assert time.monotonic() - begin < 20
        store.set("given up", "1")
    else:
        store.wait(["given up"])
    dist.is_initialized = lambda: False


def group_timeout(rank, world):
    """A group whose timeout is set later obeys it; sequence numbers count its collectives."""
    group = dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    before = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(4))
    dist.barrier()
    if rank == 0:
        dist.send(torch.ones(4), dst=1)  # messages do not count
    else:
        dist.recv(torch.ones(4), src=0)
    assert backend._get_sequence_number_for_group() == before + 2
    group.set_timeout(datetime.timedelta(milliseconds=400))
    return late(rank, world, "work")


def killed(rank, world, how):
    """Returns the survivors' seconds between the death and their error, and the error."""
    dist.barrier()
    if rank == 1:
        # The other ranks are in the collective or about to call it. In both cases they must end.
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        while True:
            work = dist.all_reduce(torch.ones(1000), async_op=True)
            work.wait() if how == "work" else work.get_future().wait()
    except RuntimeError as error:
        dist.is_initialized = lambda: False
        return time.monotonic() - begin, type(error).__name__, str(error)


class Failures(Ranks):
    def test_wrong_arguments(self):
        self.run_ranks(wrong_arguments, 2)

    def test_wrong_lists(self):
        self.run_ranks(wrong_lists, 2)

    def test_desynchronised_ranks(self):
        self.run_ranks(desynchronised, 2)

    def test_deadline(self):
        for how in ("work", "future"):
            with self.subTest(how):
                seconds = self.run_ranks(late, 2, how, timeout=1)[0]
                self.assertGreater(seconds, 0.9)
                self.assertLess(seconds, 3)

    def test_a_deadline_of_one_wait(self):
        self.run_ranks(own_deadline, 2)

    def test_monitored_barrier(self):
        for wait_all_ranks in (False, True):
            with self.subTest(wait_all_ranks=wait_all_ranks):
                self.run_ranks(monitored, 3, wait_all_ranks)

    def test_monitored_barrier_of_one_rank(self):
        for wait_all_ranks in (False, True):
            with self.subTest(wait_all_ranks=wait_all_ranks):
                self.run_ranks(monitored_alone, 3, wait_all_ranks)

    def test_a_deadline_of_one_call(self):
        seconds = self.run_ranks(deadline_of_a_call, 2, timeout=60)[0]
        self.assertGreater(seconds, 0.35)
        self.assertLess(seconds, 20)

    def test_monitored_barrier_over_gloo(self):
        self.run_ranks(monitored_over_gloo, 3, str(self.folder / "store"), backend=None)

    def test_monitored_barrier_while_a_rank_dies(self):
        ranks = self.start(monitored_while_one_dies, 3)
        for rank in ranks[:2]:
            self.result(rank)

    def test_a_timeout_that_is_set_later(self):
        self.assertLess(self.run_ranks(group_timeout, 2, timeout=60)[0], 20)

    def test_a_killed_rank_is_named(self):
        for how in ("work", "future"):
            for world in (2, 3):
                with self.subTest(how=how, world=world):
                    ranks = self.start(killed, world, how, timeout=60)
                    for number, rank in enumerate(ranks):
                        if number == 1:
                            continue
                        seconds, kind, message = self.result(rank)
                        self.assertLess(seconds, 2)
                        self.assertEqual(kind, "DistBackendError")
                        self.assertIn("rank 1", message)
                        self.assertIn(" Connection closed by peer", message)
                        self.assertNotIn("\n", message)


if __name__ == "__main__":
    unittest.main()
