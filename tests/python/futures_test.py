"""Checks that an operation completes whichever thread waits for its work or its future."""
from support import *

import subprocess

import lockstep_c10d


def started_by_all(rank):
    """Makes rank 1 late: rank 0 reports that it has started its operation, and rank 1 waits for that report."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set("started", "1")
    else:
        store.wait(["started"])


def nobody_waits(rank, world):
    """The future completes although no thread of this process waits for an operation of the group."""
    tensor = torch.full((1000,), 1.0)
    if rank == 1:
        started_by_all(rank)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    if rank == 0:
        started_by_all(rank)
    give_up = time.monotonic() + 20
    while not future.done():
        assert time.monotonic() < give_up, "the future does not complete"
        time.sleep(0.001)
    assert future.value()[0] is not None and future.value()[0].eq(2).all()


def callbacks(rank, world):
    """Callbacks run Python code in the thread that completes the future, while other threads hold Python's lock."""
    seen = []
    futures = []
    if rank == 1:
        started_by_all(rank)
    for i in range(50):
        work = dist.all_reduce(torch.full((100,), float(i)), async_op=True)
        futures.append(work.get_future().then(lambda future: seen.append(future.value()[0][0].item())))
    if rank == 0:
        started_by_all(rank)
    torch.futures.wait_all(futures)
    assert sorted(seen) == [2.0 * i for i in range(50)], seen


def waits_in_a_callback(rank, world):
    """Callbacks start operations and wait for their futures, several of them at one time."""
    def reduced(value):
        return dist.all_reduce(torch.full((100,), value), async_op=True).get_future()

    def nested(depth):
        def callback(future):
            value = future.value()[0][0].item()
            if depth == 0:
                return value
            later = reduced(value).then(nested(depth - 1))
            return later.wait() if depth % 2 else reduced(later.wait()).wait()[0][0].item()
        return callback

    if rank == 1:
        started_by_all(rank)
    future = reduced(1.0).then(nested(4))
    if rank == 0:
        started_by_all(rank)
    assert future.wait() == float(world) ** 7, future.value()


def in_another_order(rank, world):
    tensors = [torch.full((100,), float(i)) for i in range(10)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for i in (range(10) if rank == 0 else reversed(range(10))):
        works[i].wait()
        assert works[i].is_completed()
        assert tensors[i].eq(2 * i).all()


def messages_and_collectives(rank, world):
    """The future of the message that arrives last is waited for first."""
    received = torch.zeros(4)
    if rank == 0:
        message = dist.irecv(received, src=1).get_future()
        collective = dist.all_reduce(torch.ones(4), async_op=True).get_future()
        collective.wait()
        dist.send(torch.ones(1), dst=1)
        message.wait()
        assert received.eq(5).all()
    else:
        dist.all_reduce(torch.ones(4))
        dist.recv(torch.zeros(1), src=0)
        dist.send(torch.full((4,), 5.0), dst=0)


def collectives_and_messages(rank, world):
    """A thread that waits for a collective does not delay a message that arrives earlier."""
    if rank == 0:
        collective = dist.all_reduce(torch.ones(4), async_op=True).get_future()
        started_by_all(rank)
        received = torch.zeros(4)
        dist.irecv(received, src=1).get_future().wait()
        dist.send(received, dst=1)
        collective.wait()
    else:
        started_by_all(rank)
        dist.send(torch.ones(4), dst=0)
        dist.recv(torch.zeros(4), src=0)
        dist.all_reduce(torch.ones(4))


def wait_after_future(rank, world):
    """Waits for one operation through its work and through its future."""
    for _ in range(100):
        tensor = torch.ones(10)
        work = dist.all_reduce(tensor, async_op=True)
        future = work.get_future()
        work.wait()
        future.wait()
        assert tensor.eq(world).all() and future.done()


def result_futures(rank, world):
    """The future of the result completes by itself, or is complete if the work is, and tells an error by its value."""
    success, comm_error = 0, 2  # c10d::WorkResult
    store = dist.distributed_c10d._get_default_store()
    early = dist.all_reduce(torch.ones(4), async_op=True)
    result = early.get_future_result()
    assert result.wait() == success
    late = dist.all_reduce(torch.ones(4), async_op=True)
    late.wait()
    assert late.get_future_result().done() and late.get_future_result().value() == success
    assert late.get_future().done()
    if rank == 1:
        store.set("late has ended", "1")
        store.wait(["given up"])
        return
    store.wait(["late has ended"])  # the abort would otherwise end it, if rank 1 still waits
    failing = dist.all_reduce(torch.ones(4), async_op=True)
    unasked = dist.all_reduce(torch.ones(4), async_op=True)
    result = failing.get_future_result()
    dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    assert result.wait() == comm_error
    assert failing.get_future_result().value() == comm_error
    with raises(dist.DistBackendError, "aborted"):
        failing.get_future().wait()
    with raises(dist.DistBackendError, "aborted"):
        unasked.wait()
    assert unasked.is_completed() and not unasked.is_success()
    assert unasked.get_future_result().done() and unasked.get_future_result().value() == comm_error
    with raises(dist.DistBackendError, "aborted"):
        unasked.get_future().wait()
    store.set("given up", "1")


# At interpreter exit, a progress thread has completed futures, or waits for a peer that never calls.
EXIT_WITHOUT_GOODBYE = """
import sys
import torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
import lockstep_c10d
alone, rank = sys.argv[2] == "alone", int(sys.argv[4])
dist.init_process_group("lockstep", init_method=sys.argv[3], rank=rank, world_size=2)
if rank == 0 or not alone:
    future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
    future.then(lambda _: print("callback", flush=True))
    if not alone:
        future.wait()
dist.destroy_process_group = None
"""


# A forked child inherits the exit handlers of its parent, which still has an incomplete future.
FORKS = """
import os, sys
import torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
import lockstep_c10d
rank = int(sys.argv[3])
dist.init_process_group("lockstep", init_method=sys.argv[2], rank=rank, world_size=2)
store = dist.distributed_c10d._get_default_store()
if rank == 1:
    store.wait(["forked"])
tensor = torch.ones(10)
future = dist.all_reduce(tensor, async_op=True).get_future()
if rank == 0:
    for destroys in (False, True):
        child = os.fork()
        if child == 0:
            if destroys:
                dist.destroy_process_group()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    store.set("forked", "1")
future.wait()
assert tensor.eq(2).all()
dist.barrier()
dist.destroy_process_group()
"""


class Futures(Ranks):
    def test_the_future_completes_by_itself(self):
        self.run_ranks(nobody_waits, 2)

    def test_callbacks(self):
        self.run_ranks(callbacks, 2)

    def test_callbacks_that_wait(self):
        for world in (1, 2, 3):
            with self.subTest(world=world):
                self.run_ranks(waits_in_a_callback, world)

    def test_works_in_another_order(self):
        self.run_ranks(in_another_order, 2)

    def test_messages_in_another_order_than_collectives(self):
        self.run_ranks(messages_and_collectives, 2)

    def test_collectives_in_another_order_than_messages(self):
        self.run_ranks(collectives_and_messages, 2)

    def test_both_ways(self):
        self.run_ranks(wait_after_future, 2)

    def test_the_future_of_the_result(self):
        self.run_ranks(result_futures, 2)

    def run_scripts(self, script, name, *arguments):
        """Runs the program as two ranks, each in its own process. Both must exit with status 0."""
        command = [sys.executable, "-c", script, str(pathlib.Path(lockstep_c10d.__file__).parents[1])]
        ranks = [subprocess.Popen([*command, *arguments, f"file://{self.folder}/{name}", str(rank)],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
        for rank in ranks:
            self.addCleanup(rank.kill)
        for rank in ranks:
            output = rank.communicate(timeout=60)[0]
            self.assertEqual(rank.returncode, 0, output)
            self.assertNotIn("Fatal", output)

    def test_a_process_that_just_ends(self):
        for how in ("together", "alone"):
            with self.subTest(how):
                self.run_scripts(EXIT_WITHOUT_GOODBYE, how, how)

    def test_a_forked_child_leaves_the_group_to_its_parent(self):
        self.run_scripts(FORKS, "forks")


if __name__ == "__main__":
    unittest.main()
