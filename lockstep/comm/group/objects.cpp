// Objects are byte strings: their sizes are sent first, then all objects, padded to the longest
// one.
#include <lockstep/comm/group/process_group.h>

#include <algorithm>
#include <cstring>

#include <lockstep/comm/group/group_impl.h>
#include <lockstep/core/error.h>

namespace lockstep {
namespace {

torch::Tensor sizes_tensor(const std::vector<std::string>& objects) {
  auto sizes = torch::empty({static_cast<std::int64_t>(objects.size())}, torch::kInt64);
  auto* values = sizes.mutable_data_ptr<std::int64_t>();
  for (const auto& object : objects) *values++ = static_cast<std::int64_t>(object.size());
  return sizes;
}

torch::Tensor padded(const std::string& object, std::int64_t bytes) {
  auto tensor = torch::zeros({bytes}, torch::kUInt8);
  if (!object.empty()) std::memcpy(tensor.mutable_data_ptr(), object.data(), object.size());
  return tensor;
}

std::string object_of(const torch::Tensor& piece, std::int64_t bytes) {
  const auto here = piece.cpu();
  return {static_cast<const char*>(here.const_data_ptr()), static_cast<std::size_t>(bytes)};
}

std::vector<std::string> objects_of(const torch::Tensor& pieces, const torch::Tensor& sizes) {
  const auto here = pieces.cpu();
  std::vector<std::string> objects;
  for (std::int64_t i = 0; i < sizes.numel(); ++i) {
    objects.push_back(object_of(here[i], sizes[i].item<std::int64_t>()));
  }
  return objects;
}

// NCCL transfers only data on its GPU.
torch::Device transport_device(ProcessGroup& group, const torch::Device& device) {
  return group.traits().memory == BackendTraits::Memory::kDevice ? device
                                                                 : torch::Device(torch::kCPU);
}

torch::Tensor all_sizes(ProcessGroup& group, const std::string& object,
                        const torch::Device& device) {
  auto sizes = torch::empty({group.size()}, torch::dtype(torch::kInt64).device(device));
  group.all_gather_into_tensor(sizes, sizes_tensor({object}).to(device));
  return sizes.cpu();
}

}  // namespace

std::vector<std::string> ProcessGroup::all_gather_object(const std::string& object) {
  const auto device = transport_device(*this, impl_->membership.options.device);
  const auto sizes = all_sizes(*this, object, device);
  const auto longest = sizes.max().item<std::int64_t>();
  auto pieces = torch::empty({size(), longest}, torch::dtype(torch::kUInt8).device(device));
  all_gather_into_tensor(pieces, padded(object, longest).to(device));
  return objects_of(pieces, sizes);
}

std::vector<std::string> ProcessGroup::gather_object(const std::string& object, int root) {
  const auto device = transport_device(*this, impl_->membership.options.device);
  impl_->prepare.check_root("gather_object", root);
  const auto sizes = all_sizes(*this, object, device);
  const auto longest = sizes.max().item<std::int64_t>();
  const auto input = padded(object, longest).to(device);
  if (rank() != root) {
    gather(input, {}, root);
    return {};
  }
  auto pieces = torch::empty({size(), longest}, torch::dtype(torch::kUInt8).device(device));
  gather(input, pieces.unbind(0), root);
  return objects_of(pieces, sizes);
}

std::string ProcessGroup::broadcast_object(const std::string& object, int root) {
  const auto device = transport_device(*this, impl_->membership.options.device);
  auto bytes = sizes_tensor({object}).to(device);
  broadcast(bytes, root);
  const auto length = bytes.item<std::int64_t>();
  auto piece = rank() == root ? padded(object, length).to(device)
                              : torch::empty({length}, torch::dtype(torch::kUInt8).device(device));
  broadcast(piece, root);
  return object_of(piece, length);
}

std::string ProcessGroup::scatter_object(const std::vector<std::string>& objects, int root) {
  const auto device = transport_device(*this, impl_->membership.options.device);
  impl_->prepare.check_root("scatter_object", root);
  const auto given = static_cast<std::int64_t>(objects.size());
  // All ranks must learn that the number of objects is wrong: it is sent, negative, in place of the
  // sizes.
  auto sizes = rank() == root && given == size() ? sizes_tensor(objects)
                                                 : torch::full({size()}, -1 - given, torch::kInt64);
  sizes = sizes.to(device);
  broadcast(sizes, root);
  sizes = sizes.cpu();
  if (const auto first = sizes[0].item<std::int64_t>(); first < 0) {
    throw ConfigError(lockstep::str("rank ", world_ranks()[static_cast<std::size_t>(root)],
                                    ": scatter_object: got ", -1 - first, " objects, expected ",
                                    size(), ", one for each rank"));
  }
  const auto longest = sizes.max().item<std::int64_t>();
  Tensors inputs;
  if (rank() == root) {
    for (const auto& object : objects) inputs.push_back(padded(object, longest).to(device));
  }
  auto output = torch::empty({longest}, torch::dtype(torch::kUInt8).device(device));
  scatter(output, inputs, root);
  return object_of(output, sizes[rank()].item<std::int64_t>());
}

}  // namespace lockstep
