#include <lockstep/comm/backends/c10d/c10d_backend.h>

#include <utility>

#include <lockstep/comm/call/completed_work.h>
#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/kernels/plain_memory.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::c10d_adapter {

at::Tensor bytes_of(const torch::Tensor& tensor) { return tensor.detach().view(torch::kUInt8); }

Call message_call(CallKind kind, const torch::Tensor& tensor, int peer,
                  const comm::MessageTag& tag) {
  Call call;
  call.description.kind = kind;
  call.description.type = comm::data_type_of(tensor.scalar_type());
  call.description.root = peer;
  call.description.count =
      static_cast<std::uint64_t>(tensor.numel() * comm::units_per_element(tensor.scalar_type()));
  // A message with a collective's tag is part of that collective.
  call.part_of_schedule = tag.collective.has_value();
  call.number = tag.collective;
  return call;
}

std::shared_ptr<Work> C10dBackend::start(const comm::Collective& call) {
  const CallKind kind = call.description.kind;
  if (kind != CallKind::kBarrier && call.description.count == 0 && !call.uneven()) {
    check();
    context_.watchdog().note(call.description, call.number);
    return std::make_shared<comm::CompletedWork>();
  }
  switch (kind) {
    case CallKind::kBarrier:
      return barrier(call);
    case CallKind::kBroadcast:
      return broadcast(call);
    case CallKind::kReduce:
      return reduce(call);
    case CallKind::kAllReduce:
      return all_reduce(call);
    case CallKind::kGather:
      return gather(call, call.output, {});
    case CallKind::kAllGather:
      return all_gather(call, call.input, call.output, {});
    case CallKind::kScatter:
      return scatter(call);
    case CallKind::kReduceScatter:
      return reduce_scatter(call);
    case CallKind::kAllToAll:
      return all_to_all(call, call.output, {});
    case CallKind::kSend:
    case CallKind::kRecv:
      break;
  }
  throw InternalError(lockstep::str(call_name(kind), " is not a collective"));
}

torch::Tensor C10dBackend::allocate(at::IntArrayRef shape, torch::ScalarType dtype) {
  const torch::Device device = context_.options().device;
  const auto options = torch::TensorOptions().dtype(dtype).device(device);
  return comm::zeroed_memory(shape, options, [&] {
    // NCCL registers memory that it has allocated, and reads it without a copy.
    if (context_.library().supportsTensorAlloc(device.index())) {
      if (auto memory = library_memory(shape, options); memory.defined()) return memory;
    }
    return torch::zeros(shape, options);
  });
}

// Undefined if the library claims to support allocation but fails, as with old drivers.
torch::Tensor C10dBackend::library_memory(at::IntArrayRef shape,
                                          const torch::TensorOptions& options) {
  try {
    const auto count = c10::multiply_integers(shape);
    return context_.library().allocateTensor(count, options).zero_().view(shape);
  } catch (const std::exception& error) {
    log_info("allocate: ", name(), " cannot allocate memory of its own (", first_line(error),
             "); using plain memory, which it copies");
    return {};
  }
}

std::vector<at::Tensor> C10dBackend::pieces_of(const torch::Tensor& tensor) {
  return bytes_of(tensor).chunk(context_.size());
}

torch::Tensor C10dBackend::scratch(const torch::Tensor& like, std::int64_t pieces) {
  return torch::empty({like.numel() * pieces}, like.options().requires_grad(false));
}

std::shared_ptr<Work> C10dBackend::barrier(const comm::Collective& call) {
  c10d::BarrierOptions options;
  options.timeout = timeout();
  // A barrier without tensors does not say in whose stream it belongs.
  if (runs_on_stream()) options.device_ids = {context_.options().device.index()};
  return collective(call, [&] { return context_.library().barrier(options); }, {});
}

std::shared_ptr<Work> C10dBackend::broadcast(const comm::Collective& call) {
  c10d::BroadcastOptions options;
  options.rootRank = call.description.root;
  options.timeout = timeout();
  std::vector<at::Tensor> tensors{bytes_of(call.output)};
  return collective(call, [&] { return context_.library().broadcast(tensors, options); }, {});
}

bool C10dBackend::library_does(const comm::Collective& call) const {
  return library_reduces(reductions_, call.description.type, call.description.op);
}

LibraryReduction C10dBackend::prepared(const comm::Collective& call, const torch::Tensor& tensor,
                                       bool in_place) {
  return prepare(reductions_, call.description, tensor, in_place, context_.size());
}

// If the library lacks the reduction, each rank gathers all values and combines them, in an order
// that all ranks share.
std::shared_ptr<Work> C10dBackend::all_reduce(const comm::Collective& call) {
  const torch::Tensor output = call.output.detach();
  if (!library_does(call)) {
    const auto pieces = scratch(output, context_.size());
    return all_gather(call, output, pieces, combining(call, output, pieces));
  }
  const auto reduction = prepared(call, output, /*in_place=*/true);
  c10d::AllreduceOptions options;
  options.reduceOp = reduction.op;
  options.timeout = timeout();
  std::vector<at::Tensor> tensors{reduction.tensor};
  return collective(
      call, [&] { return context_.library().allreduce(tensors, options); },
      [reduction, output] { reduction.finish(output); });
}

// The library overwrites the tensors of all ranks, but only the root's output may change.
std::shared_ptr<Work> C10dBackend::reduce(const comm::Collective& call) {
  const bool is_root = context_.rank() == call.description.root;
  if (!library_does(call)) {
    const auto pieces = is_root ? scratch(call.input, context_.size()) : torch::Tensor();
    return gather(call, pieces, is_root ? combining(call, call.output, pieces) : Finish());
  }
  const bool in_place = is_root && call.input.data_ptr() == call.output.data_ptr();
  const auto reduction = prepared(call, call.input, in_place);
  c10d::ReduceOptions options;
  options.reduceOp = reduction.op;
  options.rootRank = call.description.root;
  options.timeout = timeout();
  std::vector<at::Tensor> tensors{reduction.tensor};
  return collective(
      call, [&] { return context_.library().reduce(tensors, options); },
      [reduction, output = call.output] {
        if (output.defined()) reduction.finish(output);
      });
}

std::shared_ptr<Work> C10dBackend::reduce_scatter(const comm::Collective& call) {
  if (!reductions_.scatters || !library_does(call)) {
    const auto pieces = scratch(call.input, 1);
    return all_to_all(call, pieces, combining(call, call.output, pieces));
  }
  // The library does not overwrite its input, so no copy is needed unless the values must first
  // be multiplied. The output may be this rank's piece of the input.
  const bool as_it_lies = call.description.op.kind != ReduceOp::Kind::kPreMultipliedSum;
  const auto reduction = prepared(call, call.input, as_it_lies);
  auto input = reduction.tensor;
  auto output = call.output.detach();
  if (output.scalar_type() == torch::kBool) output = output.view(torch::kUInt8);
  c10d::ReduceScatterOptions options;
  options.reduceOp = reduction.op;
  options.timeout = timeout();
  return collective(
      call, [&] { return context_.library()._reduce_scatter_base(output, input, options); }, {});
}

C10dBackend::Finish C10dBackend::combining(const comm::Collective& call, torch::Tensor destination,
                                           torch::Tensor pieces) {
  return [destination = destination.detach(), pieces = std::move(pieces), size = context_.size(),
          description = call.description] { combine(destination, pieces, size, description); };
}

std::shared_ptr<Work> C10dBackend::gather(const comm::Collective& call, const torch::Tensor& output,
                                          Finish finish) {
  c10d::GatherOptions options;
  options.rootRank = call.description.root;
  options.timeout = timeout();
  std::vector<at::Tensor> inputs{bytes_of(call.input)};
  std::vector<std::vector<at::Tensor>> outputs;
  if (context_.rank() == call.description.root) outputs = {pieces_of(output)};
  return collective(
      call, [&] { return context_.library().gather(outputs, inputs, options); }, std::move(finish));
}

std::shared_ptr<Work> C10dBackend::scatter(const comm::Collective& call) {
  c10d::ScatterOptions options;
  options.rootRank = call.description.root;
  options.timeout = timeout();
  std::vector<at::Tensor> outputs{bytes_of(call.output)};
  std::vector<std::vector<at::Tensor>> inputs;
  if (context_.rank() == call.description.root) inputs = {pieces_of(call.input)};
  return collective(call, [&] { return context_.library().scatter(outputs, inputs, options); }, {});
}

std::shared_ptr<Work> C10dBackend::all_gather(const comm::Collective& call,
                                              const torch::Tensor& input,
                                              const torch::Tensor& output, Finish finish) {
  c10d::AllgatherOptions options;
  options.timeout = timeout();
  auto from = bytes_of(input);
  auto to = bytes_of(output);
  return collective(
      call, [&] { return context_.library()._allgather_base(to, from, options); },
      std::move(finish));
}

std::shared_ptr<Work> C10dBackend::all_to_all(const comm::Collective& call,
                                              const torch::Tensor& output, Finish finish) {
  c10d::AllToAllOptions options;
  options.timeout = timeout();
  auto from = bytes_of(call.input);
  auto to = bytes_of(output);
  const auto in_bytes = [&](std::vector<std::int64_t> splits) {
    for (auto& split : splits) split *= static_cast<std::int64_t>(call.input.element_size());
    return splits;
  };
  auto from_splits = in_bytes(call.input_splits);
  auto to_splits = in_bytes(call.output_splits);
  return collective(
      call,
      [&] { return context_.library().alltoall_base(to, from, to_splits, from_splits, options); },
      std::move(finish));
}

}  // namespace lockstep::c10d_adapter
