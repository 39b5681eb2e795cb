#include <lockstep/parallel/pipeline/peer_copies.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>

#include <lockstep/comm/call/device_stream.h>

namespace lockstep::pipeline {

void mark_ready(StageMessage& message, torch::Device device) {
  if (device.is_cpu()) return;
  message.ready = std::make_shared<c10::Event>(comm::mark_stream(device));
}

void wait_until_ready(const StageMessage& message, torch::Device device) {
  if (message.ready && !device.is_cpu()) message.ready->block(comm::current_stream(device));
}

StageMessage PeerCopies::bring(StageMessage message) {
  bool between_gpus = false;
  for (torch::Tensor& tensor : message.tensors) {
    if (!tensor.defined() || tensor.device() == device_) continue;
    if (tensor.is_cuda() && device_.is_cuda()) {
      tensor = copy_between_gpus(tensor, message);
      between_gpus = true;
      continue;
    }
    // Between a CPU and a GPU LibTorch's copy waits for the current stream, so order it first.
    wait_until_ready(message, tensor.device());
    tensor = tensor.to(tensor.options().device(device_));
  }
  if (device_.is_cpu()) message.ready = nullptr;
  if (between_gpus) {
    const c10::Stream stream = stream_of(device_);
    if (message.ready) message.ready->block(stream);  // for tensors that need no copy
    auto done = std::make_shared<c10::Event>(device_.type());
    done->record(stream);
    message.ready = std::move(done);
  }
  return message;
}

torch::Tensor PeerCopies::copy_between_gpus(const torch::Tensor& tensor,
                                            const StageMessage& message) {
  const c10::Stream from = stream_of(tensor.device()), to = stream_of(device_);
  if (message.ready) {
    message.ready->block(from);
  } else {  // a tensor of the batch, produced by the current stream there
    comm::mark_stream(tensor.device()).block(from);
  }
  torch::Tensor copy;
  {
    const std::array<c10::Stream, 2> both{from, to};
    const c10::MultiStreamGuard guard(both);
    copy = tensor.to(tensor.options().device(device_), /*non_blocking=*/true);
  }
  if (!message.ready) {  // its owner may overwrite it once the stream gets there
    c10::Event copied(tensor.device().type());
    copied.record(from);
    comm::let_stream_wait(copied);
  }
  // The allocator must not reuse the memory while the other stream still reads it.
  tensor.record_stream(from);
  comm::record_current_stream(copy);
  return copy;
}

c10::Stream PeerCopies::stream_of(torch::Device device) {
  const auto found = streams_.find(device.index());
  if (found != streams_.end()) return found->second;
  const c10::Stream stream =
      c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return streams_.emplace(device.index(), stream).first->second;
}

}  // namespace lockstep::pipeline
