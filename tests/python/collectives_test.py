"""Compares every call of torch.distributed with Gloo, or with the definition of the call where Gloo lacks it."""
from support import *

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)  # Gloo has no int16
Op = dist.ReduceOp


def numbers(rank, shape=(5, 3), dtype=torch.float32, salt=0):
    """Returns small whole numbers, whose sum does not depend on the order of additions."""
    generator = torch.Generator().manual_seed(100 * salt + rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    return torch.randint(1, 5, shape, generator=generator).to(dtype)


def check_equal(name, got, expected):
    for i, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        assert torch.equal(ours, theirs), f"{name}: output {i} is {ours}, expected {theirs}"


# Each takes (group, rank, world) and returns the tensors that the call wrote.

def all_reduce(group, rank, world, dtype=torch.float32, op=Op.SUM, shape=(5, 3)):
    tensor = numbers(rank, shape, dtype)
    dist.all_reduce(tensor, op=op, group=group)
    return [tensor]


def all_reduce_channels_last(group, rank, world):
    tensor = numbers(rank, (2, 3, 4, 5)).to(memory_format=torch.channels_last)
    dist.all_reduce(tensor, group=group)
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    return [tensor]


def all_reduce_complex(group, rank, world):
    tensor = torch.complex(numbers(rank), numbers(rank, salt=1))
    dist.all_reduce(tensor, group=group)
    return [tensor]


def all_reduce_sparse(group, rank, world):
    """Rank 1 has no elements. Each other rank has row 2 twice and the row of its own number once."""
    rows = [] if rank == 1 else [2, rank, 2]
    tensor = torch.sparse_coo_tensor(torch.tensor([rows], dtype=torch.int64), numbers(rank, (len(rows), 3)), (5, 3))
    dist.all_reduce(tensor, group=group)
    return [tensor.to_dense()]


def all_reduce_coalesced(group, rank, world):
    tensors = [numbers(rank, (3,)), numbers(rank, (2, 2), salt=1), numbers(rank, (0,), salt=2)]
    dist.all_reduce_coalesced(tensors, group=group)
    return tensors


def broadcast(group, rank, world):
    tensors = [numbers(rank, salt=root) for root in range(world)]
    for root, tensor in enumerate(tensors):
        dist.broadcast(tensor, src=root, group=group)
    return tensors


def reduce(group, rank, world):
    tensor = numbers(rank)
    dist.reduce(tensor, dst=world - 1, group=group)
    return [tensor] if rank == world - 1 else []


def reduce_complex(group, rank, world):
    tensor = torch.complex(numbers(rank), numbers(rank, salt=1))
    dist.reduce(tensor, dst=0, group=group)
    return [tensor] if rank == 0 else []


def all_gather(group, rank, world):
    outputs = [torch.empty(5, 3) for _ in range(world)]
    dist.all_gather(outputs, numbers(rank), group=group)
    return outputs


def all_gather_into_tensor(group, rank, world):
    output = torch.empty(world * 5, 3)
    dist.all_gather_into_tensor(output, numbers(rank), group=group)
    return [output]


def gather(group, rank, world):
    outputs = [torch.empty(5, 3) for _ in range(world)] if rank == 1 else None
    dist.gather(numbers(rank), outputs, dst=1, group=group)
    return outputs or []


def scatter(group, rank, world):
    output = torch.empty(5, 3)
    inputs = [numbers(9, salt=i) for i in range(world)] if rank == 1 else None
    dist.scatter(output, inputs, src=1, group=group)
    return [output]


def reduce_scatter(group, rank, world):
    output = torch.empty(5, 3)
    dist.reduce_scatter(output, [numbers(rank, salt=i) for i in range(world)], group=group)
    return [output]


def reduce_scatter_tensor(group, rank, world):
    output = torch.empty(5, 3)
    dist.reduce_scatter_tensor(output, numbers(rank, (world * 5, 3)), group=group)
    return [output]


def reduce_scatter_tensor_complex(group, rank, world):
    output = torch.empty(5, 3, dtype=torch.complex64)
    whole = torch.complex(numbers(rank, (world * 5, 3)), numbers(rank, (world * 5, 3), salt=1))
    dist.reduce_scatter_tensor(output, whole, group=group)
    return [output]


def raw(group):
    """PyTorch's backend object, whose methods take lists: a tensor for each device of the rank."""
    return group._get_backend(torch.device("cpu"))


def several_all_reduce(group, rank, world):
    tensors = [numbers(rank, salt=i) for i in range(3)]
    options = dist.AllreduceOptions()
    raw(group).allreduce(tensors, options).wait()
    smallest = [numbers(rank, salt=i) for i in range(2)]
    options.reduceOp = Op.MIN
    raw(group).allreduce(smallest, options).wait()
    return tensors + smallest


def several_all_reduce_of_each_kind(group, rank, world):
    results = []
    options = dist.AllreduceOptions()
    for dtype, op in [(torch.float32, Op.PRODUCT), (torch.float32, Op.MAX), (torch.int32, Op.BAND),
                      (torch.int32, Op.BOR), (torch.int32, Op.BXOR)]:
        tensors = [numbers(rank, dtype=dtype, salt=i) for i in range(3)]
        options.reduceOp = op
        raw(group).allreduce(tensors, options).wait()
        results += tensors
    return results


def several_broadcast(group, rank, world):
    tensors = [numbers(rank, salt=i) for i in range(3)]
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = 1, 2
    raw(group).broadcast(tensors, options).wait()
    return tensors


def several_all_gather(group, rank, world):
    outputs = [[torch.empty(5, 3) for _ in range(2 * world)] for _ in range(2)]
    raw(group).allgather(outputs, [numbers(rank, salt=i) for i in range(2)], dist.distributed_c10d.AllgatherOptions()).wait()
    return outputs[0] + outputs[1]


def all_to_all_single(group, rank, world):
    output = torch.empty(world * 2, 3)
    dist.all_to_all_single(output, numbers(rank, (world * 2, 3)), group=group)
    return [output]


def all_to_all_single_uneven(group, rank, world):
    to_each = [rank + other + 1 for other in range(world)]
    output = torch.empty(sum(to_each), 2)  # each pair sends the same number of rows both ways
    dist.all_to_all_single(output, numbers(rank, (sum(to_each), 2)), to_each, to_each, group=group)
    return [output]


def send_and_recv(group, rank, world):
    tensor = torch.empty(4)
    if rank == 0:
        for other in range(1, world):
            dist.send(numbers(other, (4,)), dst=other, group=group)
            dist.send(numbers(other, (4,), salt=7), dst=other, group=group, tag=7)
        return []
    dist.recv(tensor, src=0, group=group)
    tagged = torch.empty(4)
    assert dist.recv(tagged, src=0, group=group, tag=7) == 0
    return [tensor, tagged]


def recv_from_any(group, rank, world):
    if rank != 0:
        dist.send(numbers(rank, (4,)), dst=0, group=group, tag=3)
        return []
    received = {}
    for _ in range(1, world):
        tensor = torch.empty(4)
        received[dist.recv(tensor, group=group, tag=3)] = tensor
    return [received[source] for source in sorted(received)]


def batch_isend_irecv(group, rank, world):
    following, previous = (rank + 1) % world, (rank - 1) % world
    received = torch.empty(6)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, numbers(rank, (6,)), following, group),
                                        dist.P2POp(dist.irecv, received, previous, group)]):
        work.wait()
    return [received]


AS_GLOO = [all_reduce, all_reduce_complex, all_reduce_sparse, all_reduce_coalesced, broadcast, reduce,
           reduce_complex, all_gather, all_gather_into_tensor, gather, scatter, reduce_scatter_tensor,
           reduce_scatter_tensor_complex, all_to_all_single, all_to_all_single_uneven, send_and_recv, recv_from_any,
           batch_isend_irecv, several_all_reduce, several_all_reduce_of_each_kind, several_broadcast,
           several_all_gather]


def with_gloo(rank, world):
    """Runs all calls of AS_GLOO over both backends."""
    ours, gloo = dist.new_group(backend="lockstep"), dist.new_group(backend="gloo")
    for case in AS_GLOO:
        check_equal(case.__name__, case(ours, rank, world), case(gloo, rank, world))
    for dtype in (*FLOATS, *INTEGERS):
        for op in (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX):
            name = f"all_reduce of {dtype}, {op}"
            check_equal(name, all_reduce(ours, rank, world, dtype, op), all_reduce(gloo, rank, world, dtype, op))
    for dtype in INTEGERS:
        for op in (Op.BAND, Op.BOR, Op.BXOR):
            name = f"all_reduce of {dtype}, {op}"
            check_equal(name, all_reduce(ours, rank, world, dtype, op), all_reduce(gloo, rank, world, dtype, op))


def operations_of_every_reduction(rank, world):
    """Each call that reduces passes its operation on."""
    def rows_of(r):
        return [numbers(r, (4,), salt=i) for i in range(world)]

    everybody = range(world)
    for op, reduced in ((Op.MAX, torch.amax), (Op.PRODUCT, torch.prod), (Op.AVG, torch.mean)):
        expected = [reduced(torch.stack([numbers(r, (4,), salt=i) for r in everybody]), 0) for i in everybody]
        tensor = rows_of(rank)[0]
        dist.reduce(tensor, dst=world - 1, op=op)
        if rank == world - 1:
            torch.testing.assert_close(tensor, expected[0], msg=f"reduce, {op}")
        tensors = rows_of(rank)
        options = dist.AllreduceCoalescedOptions()
        options.reduceOp = op
        raw(dist.group.WORLD).allreduce_coalesced(tensors, options).wait()
        torch.testing.assert_close(tensors, expected, msg=f"all_reduce_coalesced, {op}")
        output = torch.empty(4)
        dist.reduce_scatter(output, rows_of(rank), op=op)
        torch.testing.assert_close(output, expected[rank], msg=f"reduce_scatter, {op}")
        dist.reduce_scatter_tensor(output.zero_(), torch.cat(rows_of(rank)), op=op)
        torch.testing.assert_close(output, expected[rank], msg=f"reduce_scatter_tensor, {op}")
        with dist._coalescing_manager(async_ops=True) as works:
            dist.reduce_scatter_tensor(output.zero_(), torch.cat(rows_of(rank)), op=op)
        works.wait()
        torch.testing.assert_close(output, expected[rank], msg=f"coalesced reduce_scatter_tensor, {op}")


def by_definition(rank, world):
    """Calls that Gloo lacks, or whose results are wrong over Gloo."""
    everybody = range(world)
    total = sum(numbers(r) for r in everybody)
    check_equal("average", all_reduce(None, rank, world, op=Op.AVG), [total * (1 / world)])
    several = [numbers(rank, salt=i) for i in range(2)]
    options = dist.AllreduceOptions()
    options.reduceOp = Op.AVG
    raw(dist.group.WORLD).allreduce(several, options).wait()
    every = [numbers(r, salt=i) for i in range(2) for r in everybody]
    for tensor in several:
        torch.testing.assert_close(tensor, sum(every) / len(every))
    premultiplied = dist._make_nccl_premul_sum(0.5)
    check_equal("premultiplied", all_reduce(None, rank, world, op=premultiplied), [total * 0.5])
    premultiplied = dist._make_nccl_premul_sum(torch.tensor([0.25]))
    check_equal("premultiplied by a tensor", all_reduce(None, rank, world, op=premultiplied), [total * 0.25])
    sparse = [numbers(rank, salt=i).to_sparse() for i in range(2)]
    raw(dist.group.WORLD).allreduce(sparse, dist.AllreduceOptions()).wait()
    for tensor in sparse:
        check_equal("several sparse tensors", [tensor.to_dense()], [sum(every)])
    flags = [numbers(r, dtype=torch.bool) for r in everybody]
    check_equal("or", all_reduce(None, rank, world, torch.bool, Op.MAX), [torch.stack(flags).any(0)])
    check_equal("and", all_reduce(None, rank, world, torch.bool, Op.MIN), [torch.stack(flags).all(0)])
    check_equal("int16", all_reduce(None, rank, world, torch.int16), [total.to(torch.int16)])
    check_equal("empty", all_reduce(None, rank, world, shape=(0, 3)), [torch.empty(0, 3)])
    check_equal("scalar", all_reduce(None, rank, world, shape=()), [sum(numbers(r, ()) for r in everybody)])
    check_equal("channels_last", all_reduce_channels_last(None, rank, world),
                [sum(numbers(r, (2, 3, 4, 5)) for r in everybody)])
    # Gloo treats a strided tensor as dense and writes outside of it.
    whole = numbers(rank, (6, 8))
    expected = whole.clone()
    expected[1::2, ::3] = sum(numbers(r, (6, 8)) for r in everybody)[1::2, ::3]
    dist.all_reduce(whole[1::2, ::3])
    check_equal("strided", [whole], [expected])
    check_equal("reduce_scatter", reduce_scatter(None, rank, world), [sum(numbers(r, salt=rank) for r in everybody)])

    operations_of_every_reduction(rank, world)
    gathered = [[torch.empty(2), torch.empty(3, 1)] for r in everybody]
    raw(dist.group.WORLD).allgather_coalesced(gathered, [numbers(rank, (2,)), numbers(rank, (3, 1), salt=1)]).wait()
    for r in everybody:
        check_equal("all_gather_coalesced", gathered[r], [numbers(r, (2,)), numbers(r, (3, 1), salt=1)])

    outputs = [torch.empty(r + 1, rank + 1) for r in everybody]
    dist.all_to_all(outputs, [numbers(rank, (rank + 1, r + 1), salt=r) for r in everybody])
    check_equal("all_to_all", outputs, [numbers(r, (r + 1, rank + 1), salt=rank) for r in everybody])

    with dist._coalescing_manager(async_ops=True) as works:
        gathered = [torch.empty(world * 2), torch.empty(world * 3)]
        for output in gathered:
            dist.all_gather_into_tensor(output, numbers(rank, (output.numel() // world,)))
    works.wait()
    check_equal("coalesced all_gather_into_tensor", gathered,
                [torch.cat([numbers(r, (n,)) for r in everybody]) for n in (2, 3)])
    with dist._coalescing_manager(async_ops=True) as works:
        scattered = [torch.empty(2), torch.empty(3)]
        for output in scattered:
            dist.reduce_scatter_tensor(output, numbers(rank, (world * output.numel(),)))
    works.wait()
    check_equal("coalesced reduce_scatter_tensor", scattered,
                [sum(numbers(r, (world * n,)) for r in everybody)[rank * n:(rank + 1) * n] for n in (2, 3)])

    dist.barrier()
    large = torch.full((7_000_001,), float(rank))
    dist.all_reduce(large)
    assert large.eq(sum(everybody)).all()


def objects(rank, world):
    gathered = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "long": "x" * 1000 * rank})
    assert gathered == [{"rank": r, "long": "x" * 1000 * r} for r in range(world)], gathered
    shared = [("from", 1), [1, 2]] if rank == 1 else [None, None]
    dist.broadcast_object_list(shared, src=1)
    assert shared == [("from", 1), [1, 2]], shared
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(world)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"], mine
    outputs = [None] * world if rank == 0 else None
    dist.gather_object(rank, outputs, dst=0)
    assert rank != 0 or outputs == list(range(world)), outputs


def groups_at_once(rank, world):
    """Ranks of overlapping groups wait for their operations in different orders."""
    pairs = [(0, 1), (1, 2), (0, 2)]
    groups = [dist.new_group(pair) for pair in pairs]
    for _ in range(20):
        mine = [(group, pair) for group, pair in zip(groups, pairs) if rank in pair]
        started = []
        for group, pair in mine:
            tensor = torch.full((1000,), float(rank))
            started.append((dist.all_reduce(tensor, group=group, async_op=True), tensor, sum(pair)))
        for work, tensor, expected in reversed(started) if rank == 1 else started:
            work.wait()
            assert tensor.eq(expected).all(), (tensor[0], expected)


class Collectives(Ranks):
    def test_as_gloo(self):
        for world in (2, 3):
            with self.subTest(world=world):
                self.run_ranks(with_gloo, world, backend="gloo")

    def test_by_definition(self):
        for world in (1, 2, 3):
            with self.subTest(world=world):
                self.run_ranks(by_definition, world)

    def test_objects(self):
        self.run_ranks(objects, 3)

    def test_overlapping_groups(self):
        self.run_ranks(groups_at_once, 3)


if __name__ == "__main__":
    unittest.main()
