#include <lockstep/comm/call/device_stream.h>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::comm {

c10::Stream current_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Event mark_stream(torch::Device device) {
  c10::Event mark(device.type());
  mark.record(current_stream(device));
  return mark;
}

void let_stream_wait(const c10::Event& event) { event.block(current_stream(event.device())); }

void record_current_stream(const torch::Tensor& tensor) {
  if (!tensor.is_cpu()) tensor.record_stream(current_stream(tensor.device()));
}

}  // namespace lockstep::comm
