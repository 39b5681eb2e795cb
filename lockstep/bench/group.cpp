#include <lockstep/bench/group.h>

#include <torch/nn/module.h>

#include <lockstep/comm/store/network.h>

namespace lockstep::bench {

ProcessGroup make_start_line(ProcessGroup group, std::chrono::milliseconds timeout) {
  if (group.shares_memory() || group.local_size() != group.size()) return group;
  WorkerEnvironment meeting{.rank = group.rank(),
                            .world_size = group.size(),
                            .local_rank = group.rank(),
                            .local_world_size = group.size(),
                            .source = "bench"};
  if (group.rank() == 0) meeting.listen_fd = comm::listen_on(meeting.master_addr, 0);
  const int port = meeting.listen_fd ? comm::bound_port(*meeting.listen_fd) : 0;
  meeting.master_port = static_cast<std::uint16_t>(agree(group, port));
  // This names shm, because no other transport has such a barrier.
  return init_process_group({.backend = "shm", .timeout = timeout, .environment = meeting});
}

std::int64_t agree(ProcessGroup& group, std::int64_t value) {
  const auto tensor = torch::full({1}, value, torch::kInt64);
  group.broadcast(tensor, 0);
  return tensor.item<std::int64_t>();
}

std::vector<std::vector<double>> gather_all(ProcessGroup& group,
                                            const std::vector<double>& values) {
  const auto mine = torch::tensor(values, torch::kFloat64);
  const auto all = torch::zeros({group.size(), mine.numel()}, torch::kFloat64);
  group.all_gather_into_tensor(all, mine);
  std::vector<std::vector<double>> rows;
  for (int rank = 0; rank < group.size(); ++rank) {
    const double* const first = all[rank].const_data_ptr<double>();
    rows.emplace_back(first, first + mine.numel());
  }
  return rows;
}

}  // namespace lockstep::bench
