#include <lockstep/comm/backends/single/single_backend.h>

#include <mutex>
#include <utility>

#include <lockstep/comm/call/completed_work.h>
#include <lockstep/comm/call/outcome.h>
#include <lockstep/comm/kernels/plain_memory.h>
#include <lockstep/core/error.h>

namespace lockstep::single {
namespace {

class SingleBackend final : public comm::Backend {
 public:
  explicit SingleBackend(torch::Device device) : device_(device) {}

  const std::string& name() const override {
    static const std::string name = "single";
    return name;
  }

  const BackendTraits& traits() const override {
    static constexpr BackendTraits kTraits{.memory = BackendTraits::Memory::kAny,
                                           .completes_at_once = true};
    return kTraits;
  }

  bool runs_on_stream() const override { return true; }

  // The reduction of one value is that value, except that a pre-multiplied sum applies its factor.
  std::shared_ptr<Work> start(const comm::Collective& call) override {
    check();
    const torch::NoGradGuard no_grad;
    const auto output = call.output.defined() ? call.output.detach() : call.output;
    if (call.input.defined() && output.defined() && call.input.data_ptr() != output.data_ptr()) {
      output.copy_(call.input);
    }
    if (call.description.op.kind == ReduceOp::Kind::kPreMultipliedSum && output.defined()) {
      output.mul_(call.description.op.factor);
    }
    return std::make_shared<comm::CompletedWork>();
  }

  std::shared_ptr<Work> send(torch::Tensor, int, comm::MessageTag) override {
    throw ConfigError("send: a group of one rank has nobody to send to");
  }
  std::shared_ptr<Work> recv(torch::Tensor, std::optional<int>, comm::MessageTag) override {
    throw ConfigError("recv: a group of one rank has nobody to receive from");
  }

  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    return comm::zeroed_memory(shape, torch::TensorOptions().dtype(dtype).device(device_));
  }

  std::vector<torch::Tensor> peer_views(const torch::Tensor& tensor) override { return {tensor}; }

  void abort(const std::string& reason) override {
    const std::scoped_lock lock(mutex_);
    if (reason_.empty()) reason_ = comm::abort_reason(reason);
  }
  void check() override {
    const std::scoped_lock lock(mutex_);
    if (!reason_.empty()) throw CommError(reason_);
  }

 private:
  torch::Device device_;
  std::mutex mutex_;  // guards reason_
  std::string reason_;
};

}  // namespace

std::shared_ptr<comm::Backend> make(torch::Device device) {
  return std::make_shared<SingleBackend>(device);
}

}  // namespace lockstep::single
