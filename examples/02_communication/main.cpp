// The collectives and messages between ranks, with every result checked. docs/communication.md
// explains them. Runs on any number of ranks, including one. The argument is the backend (default
// "auto").
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>
#include <torch/torch.h>

using lockstep::P2POp;
using lockstep::ProcessGroup;
using lockstep::ReduceOp;

namespace {

void require(bool holds, const char* what) {
  if (!holds) throw lockstep::Error(std::string("wrong result: ") + what);
}

void collectives(ProcessGroup& group) {
  const int rank = group.rank(), size = group.size();

  auto sum = torch::full({3}, rank + 1);
  group.all_reduce(sum);  // now 1 + 2 + ... + size on all ranks
  require((sum == size * (size + 1) / 2).all().item<bool>(), "all_reduce");

  auto weights = rank == 0 ? torch::arange(4) : torch::zeros({4}, torch::kInt64);
  group.broadcast(weights, /*root=*/0);
  require(torch::equal(weights, torch::arange(4)), "broadcast");

  auto rows = torch::empty({size, 2}, torch::kInt64);
  group.all_gather_into_tensor(rows, torch::full({2}, rank));  // row r comes from rank r
  require(torch::equal(rows.select(1, 0), torch::arange(size)), "all_gather_into_tensor");

  auto share = torch::empty({2});
  group.reduce_scatter_tensor(share, torch::ones({size, 2}), ReduceOp::kAverage);
  require(torch::allclose(share, torch::ones({2})), "reduce_scatter_tensor");

  // Uneven pieces: rank r receives r + 1 rows from each rank.
  std::vector<std::int64_t> given, taken(size, rank + 1);
  for (int r = 0; r < size; ++r) given.push_back(r + 1);
  auto received = torch::empty({size * (rank + 1)}, torch::kInt64);
  group.all_to_all_single(received, torch::full({size * (size + 1) / 2}, rank), taken, given);
  require(torch::equal(received, torch::arange(size).repeat_interleave(rank + 1)), "all_to_all");
}

void asynchronous(ProcessGroup& group) {
  auto gradient = torch::full({1000}, static_cast<float>(group.rank()));
  auto work = group.async_all_reduce(gradient, ReduceOp::kAverage);
  const auto other = torch::ones({64, 64}).mm(torch::ones({64, 64}));  // meanwhile
  work->wait(std::chrono::seconds(30));  // from here on `gradient` may be used again
  const float mean = static_cast<float>(group.size() - 1) / 2;
  require(torch::allclose(gradient, torch::full({1000}, mean)), "async_all_reduce");
  require(other[0][0].item<float>() == 64, "matrix product");
}

void messages(ProcessGroup& group) {
  const int rank = group.rank(), size = group.size();
  if (size == 1) return;  // nobody to send to

  auto note = torch::full({2}, rank);
  if (rank == 1) group.send(note, /*destination=*/0, /*tag=*/7);
  if (rank == 0) group.recv(note, /*source=*/1, /*tag=*/7);
  require(rank > 1 || note[0].item<int>() == 1, "recv");

  // Around a ring, in one batch: separate blocking calls would deadlock.
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  auto from_left = torch::empty({5}, torch::kInt64);
  const auto works = group.batch_isend_irecv(
      {{P2POp::Kind::kSend, torch::full({5}, rank), right}, {P2POp::Kind::kRecv, from_left, left}});
  for (const auto& work : works) work->wait();
  require((from_left == left).all().item<bool>(), "batch_isend_irecv");
}

void groups(ProcessGroup& group) {
  const int rank = group.rank(), neighbour = rank ^ 1;
  auto pair = group.split(/*color=*/rank / 2);  // ranks 0 and 1, 2 and 3, ...
  auto sum = torch::full({1}, rank);
  pair->all_reduce(sum);
  require(sum.item<int>() == rank + (neighbour < group.size() ? neighbour : 0), "split");

  const auto first = group.new_group({0});  // all ranks call it, only rank 0 gets a group
  require(first.has_value() == (rank == 0), "new_group");
}

void objects(ProcessGroup& group) {
  const auto names = group.all_gather_object("rank " + std::to_string(group.rank()));
  require(names.back() == "rank " + std::to_string(group.size() - 1), "all_gather_object");
  require(group.broadcast_object(names[group.rank()], /*root=*/0) == "rank 0", "broadcast_object");
}

void symmetric_memory(ProcessGroup& group) {
  auto bucket = group.allocate({256, 1024}, torch::kFloat32);
  bucket.fill_(1);
  group.all_reduce(bucket);  // copies nothing between the ranks of one host
  group.all_reduce(bucket[0], ReduceOp::premultiplied_sum(0.5));  // a view works as well
  require(bucket[1][0].item<float>() == group.size(), "allocate");
}

void wrong_calls(ProcessGroup& group) {
  bool refused = false;
  try {
    group.broadcast(torch::zeros({1}), /*root=*/group.size());
  } catch (const lockstep::ConfigError&) {  // "rank 0: broadcast: root must be from 0 to 1, got 2"
    refused = true;                         // nothing was sent: the group stays usable
  }
  require(refused, "a root that does not exist");
}

}  // namespace

int main(int argc, char** argv) try {
  torch::set_num_threads(1);
  lockstep::ProcessGroupOptions options;
  if (argc > 1) options.backend = argv[1];
  auto group = lockstep::init_process_group(options);
  for (auto* part :
       {collectives, asynchronous, messages, groups, objects, symmetric_memory, wrong_calls}) {
    part(group);
  }
  group.barrier();
  if (group.rank() != 0) return 0;
  std::printf("group of %d over %s: all results are right\n", group.size(),
              group.backend().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return lockstep::exit_code(error);
}
