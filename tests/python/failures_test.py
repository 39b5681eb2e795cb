"""What goes wrong is an exception of one line that says what, on every rank, soon."""
from support import *

import signal


def wrong_arguments(rank, world):
    cases = [
        (lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), op=dist.ReduceOp.AVG), ["average", "int32"]),
        (lambda: dist.all_gather_into_tensor(torch.ones(5), torch.ones(3)), ["all_gather"]),
        (lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 1], [2, 2]), ["all_to_all"]),
    ]
    for call, texts in cases:
        with raises(ValueError, f"rank {rank}", *texts):
            call()
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # the group is as it was
    assert tensor.eq(world).all()


def desynchronised(rank, world):
    with raises(dist.DistBackendError, "all_reduce[float32, 4", "broadcast[float32, 4"):
        if rank == 0:
            dist.all_reduce(torch.ones(4))
        else:
            dist.broadcast(torch.ones(4), src=0)


def late(rank, world, how):
    """Rank 1 does not come before rank 0 has given up."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["given up"])
        return 0
    begin = time.monotonic()
    with raises(dist.DistBackendError, "all_reduce[float32, 4", "rank 1"):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        work.wait() if how == "work" else work.get_future().wait()
    store.set("given up", "1")
    return time.monotonic() - begin


def own_deadline(rank, world):
    """A wait with a deadline of its own fails alone; the operation goes on."""
    store = dist.distributed_c10d._get_default_store()
    tensor = torch.ones(4)
    if rank == 1:
        store.wait(["waited"])
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 0:
        with raises(dist.DistBackendError):
            work.wait(datetime.timedelta(milliseconds=50))
        store.set("waited", "1")
    work.wait()
    assert tensor.eq(2).all()


def killed(rank, world, how):
    """Returns the survivors' seconds between the death and their error, and the error."""
    dist.barrier()
    if rank == 1:
        # The others are in the collective, or about to be: either way they must end.
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
                        self.assertNotIn("\n", message)


if __name__ == "__main__":
    unittest.main()
