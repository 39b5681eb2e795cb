#include <lockstep/comm/backends/through_device/through_device.h>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include <lockstep/core/strings.h>

namespace lockstep::through_device {
namespace {

using torch::Tensor;

// The stream for the copies and the calls of the inner backend. In the caller's stream they would
// wait for unrelated work. On a CPU there is no stream: everything is complete when it returns.
class Lane {
 public:
  explicit Lane(torch::Device device) : device_(device) {
    if (!device.is_cpu()) {
      stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    }
  }

  [[nodiscard]] c10::OptionalStreamGuard enter() const { return c10::OptionalStreamGuard(stream_); }

  Tensor empty_like(const Tensor& host) const {
    return torch::empty(host.sizes(), torch::TensorOptions().dtype(host.dtype()).device(device_));
  }

  Tensor to_device(const Tensor& host) const {
    const Tensor staged = staging_of(host);
    if (!staged.is_same(host)) staged.copy_(host);
    return empty_like(host).copy_(staged, /*non_blocking=*/true);
  }

  /// A pinned buffer for copies to or from `host`, or `host` itself if it needs none.
  Tensor staging_of(const Tensor& host) const {
    if (!stream_ || host.is_pinned()) return host;
    const auto options = torch::TensorOptions().dtype(host.dtype()).pinned_memory(true);
    return torch::empty(host.sizes(), options);
  }

  /// An event that completes when everything queued so far is complete.
  std::optional<c10::Event> mark() const {
    if (!stream_) return std::nullopt;
    c10::Event event(device_.type());
    event.record(*stream_);
    return event;
  }

 private:
  const torch::Device device_;
  std::optional<c10::Stream> stream_;
};

struct Output {
  Tensor host;  ///< undefined if the call writes nothing
  Tensor device;
};

class ThroughDeviceWork final : public Work {
 public:
  ThroughDeviceWork(std::shared_ptr<const Lane> lane, std::shared_ptr<Work> inner, Output output,
                    std::chrono::milliseconds timeout)
      : lane_(std::move(lane)),
        inner_(std::move(inner)),
        output_(std::move(output)),
        timeout_(timeout) {}

  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    attempt([&] {
      if (!returning_) {
        // Without a timeout, NCCL would make the stream wait instead of this thread.
        const auto guard = lane_->enter();
        inner_->wait(timeout.value_or(timeout_));
        bring_back();
      }
      if (copied_) copied_->synchronize();
      return true;
    });
    if (error_) std::rethrow_exception(error_);
  }

  bool is_completed() override {
    attempt([&] {
      if (!returning_) {
        const auto guard = lane_->enter();
        if (!inner_->is_completed()) return false;
        if (const auto error = inner_->error()) std::rethrow_exception(error);
        bring_back();
      }
      return !copied_ || copied_->query();
    });
    return ended_;
  }

  std::exception_ptr error() const override { return error_; }
  int source_rank() const override { return inner_->source_rank(); }

 private:
  // Ends the Work once `is_back` returns true, which means that the output has arrived in host
  // memory (or in `staging_`), or throws.
  template <class Function>
  void attempt(const Function& is_back) {
    if (ended_) return;
    const torch::NoGradGuard no_grad;
    try {
      if (!is_back()) return;
      if (staging_.defined() && !staging_.is_same(output_.host)) output_.host.copy_(staging_);
    } catch (...) {
      error_ = std::current_exception();
    }
    ended_ = true;
    output_ = {};
    staging_.reset();
  }

  void bring_back() {
    returning_ = true;
    if (!output_.host.defined()) return;
    staging_ = lane_->staging_of(output_.host);
    staging_.copy_(output_.device, /*non_blocking=*/true);
    copied_ = lane_->mark();
  }

  const std::shared_ptr<const Lane> lane_;
  const std::shared_ptr<Work> inner_;
  Output output_;
  const std::chrono::milliseconds timeout_;
  bool returning_ = false;  // inner_ is complete
  Tensor staging_;
  std::optional<c10::Event> copied_;  // into staging_
  bool ended_ = false;
  std::exception_ptr error_;
};

class ThroughDevice final : public Backend {
 public:
  ThroughDevice(std::shared_ptr<Backend> inner, const Options& options)
      : inner_(std::move(inner)),
        options_(options),
        lane_(std::make_shared<const Lane>(options.device)),
        name_(lockstep::str(inner_->name(), " on ", options.device)) {}

  const std::string& name() const override { return name_; }

  std::shared_ptr<Work> start(const Collective& call) override {
    const torch::NoGradGuard no_grad;
    const auto guard = lane_->enter();
    const bool is_broadcast = call.description.kind == CallKind::kBroadcast;
    const bool is_root = call.description.root == options_.rank;
    const bool reads_output =
        (is_broadcast && is_root) || call.description.kind == CallKind::kAllReduce;
    const bool writes_output = call.output.defined() && !(is_broadcast && is_root);
    Collective on_device = call;
    if (call.input.defined()) on_device.input = lane_->to_device(call.input.detach());
    if (call.output.defined()) {
      on_device.output =
          reads_output ? lane_->to_device(call.output.detach()) : lane_->empty_like(call.output);
    }
    auto work = inner_->start(on_device);
    return work_of(std::move(work), writes_output ? call.output.detach() : Tensor(),
                   on_device.output);
  }

  std::shared_ptr<Work> send(Tensor tensor, int destination, MessageTag tag) override {
    const torch::NoGradGuard no_grad;
    const auto guard = lane_->enter();
    return work_of(inner_->send(lane_->to_device(tensor.detach()), destination, tag), {}, {});
  }

  std::shared_ptr<Work> recv(Tensor tensor, std::optional<int> source, MessageTag tag) override {
    const auto guard = lane_->enter();
    const Tensor on_device = lane_->empty_like(tensor);
    return work_of(inner_->recv(on_device, source, tag), tensor.detach(), on_device);
  }

  Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    return torch::zeros(shape, dtype);
  }

  void abort(const std::string& reason) override { inner_->abort(reason); }
  void check() override { inner_->check(); }
  void throw_if_ended() override { inner_->throw_if_ended(); }

 private:
  std::shared_ptr<Work> work_of(std::shared_ptr<Work> inner, Tensor host, Tensor device) const {
    return std::make_shared<ThroughDeviceWork>(
        lane_, std::move(inner), Output{std::move(host), std::move(device)}, options_.timeout);
  }

  const std::shared_ptr<Backend> inner_;
  const Options options_;
  const std::shared_ptr<const Lane> lane_;
  const std::string name_;
};

}  // namespace

std::shared_ptr<Backend> make(std::shared_ptr<Backend> inner, const Options& options) {
  return std::make_shared<ThroughDevice>(std::move(inner), options);
}

}  // namespace lockstep::through_device
