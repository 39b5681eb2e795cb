#include <lockstep/comm/backends/nccl/nccl_backend.h>

#include <utility>

#include <lockstep/comm/backends/c10d/c10d_backend.h>
#include <lockstep/comm/backends/nccl/stream_context.h>
#include <lockstep/comm/backends/nccl/stream_work.h>
#include <lockstep/core/error.h>

namespace lockstep::nccl {
namespace {

using c10d_adapter::bytes_of;
using c10d_adapter::message_call;

constexpr c10d_adapter::LibraryReductions kReductions{
    .averages = true, .bitwise = false, .precise_halves = true, .scatters = true};

class NcclBackend final : public c10d_adapter::C10dBackend {
 public:
  explicit NcclBackend(std::shared_ptr<StreamContext> context)
      : C10dBackend(*context, kReductions), context_(std::move(context)) {}

  const BackendTraits& traits() const override {
    static constexpr BackendTraits kTraits{
        .memory = BackendTraits::Memory::kDevice, .messages_overlap = false, .splits = true};
    return kTraits;
  }

  bool runs_on_stream() const override { return true; }

  std::shared_ptr<Work> send(torch::Tensor tensor, int destination,
                             comm::MessageTag /*tag*/) override {
    std::vector<at::Tensor> message{nccl_bytes(tensor)};
    return nccl_message(CallKind::kSend, tensor, destination,
                        [&] { return context_->library().send(message, destination, 0); });
  }

  std::shared_ptr<Work> recv(torch::Tensor tensor, std::optional<int> source,
                             comm::MessageTag /*tag*/) override {
    if (!source) throw any_source_error();
    std::vector<at::Tensor> message{nccl_bytes(tensor)};
    return nccl_message(CallKind::kRecv, tensor, *source,
                        [&] { return context_->library().recv(message, *source, 0); });
  }

  // NCCL runs the whole batch as one operation. All messages end together, and ranks cannot
  // deadlock, whatever the order of their messages.
  std::vector<std::shared_ptr<Work>> batch(std::vector<comm::Message> messages) override {
    if (messages.size() < 2) return comm::Backend::batch(std::move(messages));
    std::vector<Call> calls;
    for (const comm::Message& each : messages) {
      if (!each.peer) throw any_source_error();
      calls.push_back(message_call(each.kind, each.tensor, *each.peer, 0));
    }
    const auto handle = context_->start(calls[0], [&] {
      context_->library().startCoalescing();
      try {
        for (const comm::Message& each : messages) {
          std::vector<at::Tensor> bytes{nccl_bytes(each.tensor)};
          if (each.kind == CallKind::kSend) {
            context_->library().send(bytes, *each.peer, 0);
          } else {
            context_->library().recv(bytes, *each.peer, 0);
          }
        }
      } catch (...) {
        context_->library()
            .endCoalescing();  // otherwise this thread's later calls would join the batch
        throw;
      }
      return context_->library().endCoalescing();
    });
    std::vector<std::shared_ptr<Work>> works;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      works.push_back(std::make_shared<StreamWork>(
          context_, handle, std::move(calls[i]), [tensor = messages[i].tensor] { (void)tensor; }));
    }
    return works;
  }

 private:
  static ConfigError any_source_error() {
    return ConfigError("recv: NCCL cannot receive from any rank; name the source");
  }

  std::shared_ptr<Work> collective(const comm::Collective& call,
                                   const std::function<WorkHandle()>& function,
                                   Finish finish) override {
    const Call named{call.description, call.number};
    auto handle = context_->start(named, function);
    return std::make_shared<StreamWork>(context_, std::move(handle), named, std::move(finish));
  }

  // An empty message is sent as one byte.
  static torch::Tensor nccl_bytes(const torch::Tensor& tensor) {
    if (tensor.numel() > 0) return bytes_of(tensor);
    return torch::zeros({1}, tensor.options().dtype(torch::kUInt8).requires_grad(false));
  }

  std::shared_ptr<Work> nccl_message(CallKind kind, const torch::Tensor& tensor, int peer,
                                     const std::function<WorkHandle()>& function) {
    auto call = message_call(kind, tensor, peer, 0);
    auto handle = context_->start(call, function);
    return std::make_shared<StreamWork>(context_, std::move(handle), std::move(call), Finish());
  }

  const std::shared_ptr<StreamContext> context_;
};

}  // namespace

std::shared_ptr<comm::Backend> adapt(c10::intrusive_ptr<c10d::Backend> library,
                                     c10::intrusive_ptr<c10d::Store> store,
                                     c10d_adapter::AdapterOptions options,
                                     std::shared_ptr<DeviceQueries> device) {
  return std::make_shared<NcclBackend>(std::make_shared<StreamContext>(
      std::move(library), std::move(store), std::move(options), std::move(device)));
}

}  // namespace lockstep::nccl
