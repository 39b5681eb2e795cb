#include <lockstep/train/strategies/named_exchange.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

#include <torch/utils.h>

#include <lockstep/core/error.h>

namespace lockstep::train {
namespace {

// Two lines for each tensor: its name; its type, dimensions and sizes.
std::string list_of(const NamedTensors& tensors) {
  std::ostringstream out;
  for (const auto& [name, tensor] : tensors) {
    out << name << '\n' << static_cast<int>(tensor.scalar_type()) << ' ' << tensor.dim();
    for (const std::int64_t size : tensor.sizes()) out << ' ' << size;
    out << '\n';
  }
  return out.str();
}

// Uninitialized tensors with the names, types and sizes in `list`.
NamedTensors tensors_in(const std::string& list, torch::Device device) {
  NamedTensors tensors;
  std::istringstream in(list);
  for (std::string name, line; std::getline(in, name) && std::getline(in, line);) {
    std::istringstream numbers(line);
    int type = 0;
    std::int64_t dimensions = 0;
    numbers >> type >> dimensions;
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(dimensions));
    for (std::int64_t& size : sizes) numbers >> size;
    LOCKSTEP_CHECK(numbers, "a list of tensors is damaged at ", name);
    tensors.emplace_back(name, torch::empty(sizes, torch::TensorOptions(device).dtype(
                                                       static_cast<torch::ScalarType>(type))));
  }
  return tensors;
}

void send_all(const NamedTensors& tensors, int to, ProcessGroup& group, torch::Device device) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() > 0) group.send(tensor.detach().to(device).contiguous(), to);
  }
}

void receive_all(const NamedTensors& tensors, int from, ProcessGroup& group) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() > 0) group.recv(tensor, from);
  }
}

}  // namespace

NamedTensors gather_named(const NamedTensors& own, ProcessGroup& group, torch::Device device) {
  const torch::NoGradGuard no_grad;
  if (group.size() == 1) return own;
  const std::vector<std::string> lists = group.gather_object(list_of(own), 0);
  if (group.rank() != 0) {
    send_all(own, 0, group, device);
    return {};
  }
  NamedTensors all = own;
  for (int rank = 1; rank < group.size(); ++rank) {
    const NamedTensors arrived = tensors_in(lists[static_cast<std::size_t>(rank)], device);
    receive_all(arrived, rank, group);
    for (const auto& [name, tensor] : arrived) all.emplace_back(name, tensor.cpu());
  }
  return all;
}

NamedTensors scatter_named(const std::vector<NamedTensors>& of_ranks, ProcessGroup& group,
                           torch::Device device) {
  const torch::NoGradGuard no_grad;
  if (group.size() == 1) return of_ranks.front();
  std::vector<std::string> lists;
  for (const NamedTensors& each : of_ranks) lists.push_back(list_of(each));
  const NamedTensors arrived = tensors_in(group.scatter_object(lists, 0), device);
  if (group.rank() != 0) {
    receive_all(arrived, 0, group);
    return arrived;
  }
  for (int rank = 1; rank < group.size(); ++rank) {
    send_all(of_ranks[static_cast<std::size_t>(rank)], rank, group, device);
  }
  return of_ranks.front();
}

}  // namespace lockstep::train
