#include <lockstep/comm/backends/shm/shm_backend.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <c10/util/SmallVector.h>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/comm/call/outcome.h>
#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/kernels/plain_memory.h>
#include <lockstep/core/error.h>

namespace lockstep::shm {
namespace {

// The tag of messages of an uneven all_to_all. Tags of users are not negative, and the negative
// tags of algorithms do not reach the minimum.
constexpr int kAllToAllTag = std::numeric_limits<int>::min();

std::byte* bytes_of(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::byte*>(tensor.data_ptr()) : nullptr;
}

// The number of bytes from a tensor's first byte to its last.
std::size_t bytes_spanned(const torch::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
}

// The counterpart in the slice of `rank` of `like`, which lies at `place` in this rank's slice.
torch::Tensor view_at(const SymmetricPlace& place, int rank, const torch::Tensor& like) {
  return torch::from_blob(
      place.allocation->slice(rank) + place.offset, like.sizes(), like.strides(),
      [segment = place.allocation->segment](void*) {}, torch::TensorOptions().dtype(like.dtype()));
}

// Base class of both kinds of Work. It ends once and then holds its error, if any.
class ShmWork : public Work {
 public:
  ShmWork(std::shared_ptr<Engine> engine, std::chrono::milliseconds timeout)
      : engine_(std::move(engine)), timeout_(timeout) {}

  void wait(std::optional<std::chrono::milliseconds> timeout) final {
    if (!outcome_.has_ended()) {
      try {
        wait_for_engine(*engine_, timeout.value_or(timeout_));
        end(nullptr);
      } catch (...) {
        end(std::current_exception());
      }
    }
    outcome_.rethrow();
  }

  bool is_completed() final {
    if (outcome_.has_ended()) return true;
    try {
      if (!test_engine(*engine_)) return false;
      end(nullptr);
    } catch (...) {
      end(std::current_exception());
    }
    return true;
  }

  std::exception_ptr error() const final { return outcome_.error(); }

 protected:
  virtual void wait_for_engine(Engine& engine, std::chrono::milliseconds timeout) = 0;
  virtual bool test_engine(Engine& engine) = 0;

 private:
  void end(std::exception_ptr error) {
    const std::scoped_lock lock(ending_);
    outcome_.end(std::move(error));
  }

  const std::shared_ptr<Engine> engine_;
  const std::chrono::milliseconds timeout_;
  std::mutex ending_;  // held by the thread that ends `outcome_`
  comm::Outcome outcome_;
};

class ShmCollectiveWork final : public ShmWork {
 public:
  ShmCollectiveWork(std::shared_ptr<Engine> engine, std::chrono::milliseconds timeout,
                    Engine::Ticket ticket)
      : ShmWork(std::move(engine), timeout), ticket_(ticket) {}

 private:
  void wait_for_engine(Engine& engine, std::chrono::milliseconds timeout) override {
    engine.wait(ticket_, timeout);
  }
  bool test_engine(Engine& engine) override { return engine.test(ticket_); }

  const Engine::Ticket ticket_;
};

// The transfers of one Work. Most have a single one, for which the list allocates no memory.
using Transfers = c10::SmallVector<std::shared_ptr<Transfer>, 1>;

class TransferWork final : public ShmWork {
 public:
  TransferWork(std::shared_ptr<Engine> engine, std::chrono::milliseconds timeout,
               Transfers transfers, std::optional<Engine::Ticket> collective = std::nullopt)
      : ShmWork(std::move(engine), timeout),
        transfers_(std::move(transfers)),
        collective_(collective) {}

  int source_rank() const override { return transfers_.size() == 1 ? transfers_[0]->source : -1; }

 private:
  void wait_for_engine(Engine& engine, std::chrono::milliseconds timeout) override {
    const Deadline deadline(timeout);
    if (collective_) engine.wait(*collective_, timeout);
    for (const auto& transfer : transfers_) {
      engine.wait(*transfer, std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()));
    }
  }
  bool test_engine(Engine& engine) override {
    if (collective_ && !engine.test(*collective_)) return false;
    for (const auto& transfer : transfers_) {
      if (!engine.test(*transfer)) return false;
    }
    return true;
  }

  const Transfers transfers_;
  const std::optional<Engine::Ticket> collective_;
};

class ShmBackend final : public comm::Backend {
 public:
  ShmBackend(std::shared_ptr<Engine> engine, std::chrono::milliseconds timeout)
      : engine_(std::move(engine)), timeout_(timeout) {}

  const std::string& name() const override {
    static const std::string name = "shm";
    return name;
  }

  const BackendTraits& traits() const override {
    static constexpr BackendTraits kTraits{.progresses_alone = false};
    return kTraits;
  }

  std::shared_ptr<Work> start(const comm::Collective& call) override {
    if (call.uneven()) return start_uneven(call);
    const auto [input, output] = buffers(call);
    const auto owners =
        std::make_shared<std::pair<torch::Tensor, torch::Tensor>>(call.input, call.output);
    const auto ticket = engine_->post(call.description, call.number, input, output, owners);
    return std::make_shared<ShmCollectiveWork>(engine_, timeout_, ticket);
  }

  // The caller holds the tensors until the operation is complete or the engine has failed and no
  // longer accesses them.
  void run(const comm::Collective& call, const std::function<void()>& meanwhile) override {
    if (call.uneven()) return comm::Backend::run(call, meanwhile);
    const auto [input, output] = buffers(call);
    engine_->run(call.description, call.number, input, output, timeout_, meanwhile);
  }

  std::shared_ptr<Work> send(torch::Tensor tensor, int destination, comm::MessageTag tag) override {
    return message(CallKind::kSend, std::move(tensor), destination, tag);
  }
  std::shared_ptr<Work> recv(torch::Tensor tensor, std::optional<int> source,
                             comm::MessageTag tag) override {
    return message(CallKind::kRecv, std::move(tensor), source.value_or(-1), tag);
  }

  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    auto memory = engine_->allocate(comm::bytes_to_allocate(shape, dtype), timeout_);
    std::byte* data = memory.get();
    return torch::from_blob(
        data, shape, [memory = std::move(memory)](void*) mutable { memory.reset(); },
        torch::TensorOptions().dtype(dtype));
  }

  std::vector<torch::Tensor> peer_views(const torch::Tensor& tensor) override {
    if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != torch::kStrided ||
        tensor.numel() == 0)
      return {};
    const auto place = engine_->place_of(bytes_of(tensor), bytes_spanned(tensor));
    if (!place) return {};
    std::vector<torch::Tensor> views;
    for (int rank = 0; rank < engine_->size(); ++rank) {
      // Return the caller's tensor itself for its own rank: only that tensor keeps the memory
      // registered with the engine, so that the caller can communicate through it.
      views.push_back(rank == engine_->rank() ? tensor : view_at(*place, rank, tensor));
    }
    return views;
  }

  bool shares_memory() const override { return true; }

  void abort(const std::string& reason) override { engine_->abort(reason); }
  void check() override { engine_->check(); }
  void throw_if_ended() override { engine_->throw_if_ended(); }

 private:
  std::shared_ptr<Work> message(CallKind kind, torch::Tensor tensor, int peer,
                                comm::MessageTag tag) {
    Transfers transfers;
    transfers.push_back(post(kind, std::move(tensor), peer, tag));
    return std::make_shared<TransferWork>(engine_, timeout_, std::move(transfers));
  }

  std::shared_ptr<Transfer> post(CallKind kind, torch::Tensor tensor, int peer,
                                 comm::MessageTag tag) {
    const auto count = static_cast<std::uint64_t>(tensor.numel());
    CallDescription call{.kind = kind,
                         .type = comm::data_type_of(tensor.scalar_type()),
                         .root = peer,
                         .count = count};
    std::byte* const data = bytes_of(tensor);
    return engine_->post(call, tag.value, data, std::make_shared<torch::Tensor>(std::move(tensor)),
                         tag.fingerprint);
  }

  // The input and output as the engine expects them: the same memory for calls that work in place.
  static std::pair<const std::byte*, std::byte*> buffers(const comm::Collective& call) {
    std::byte* const input = bytes_of(call.input);
    std::byte* const output = bytes_of(call.output);
    switch (call.description.kind) {
      case CallKind::kBroadcast:
      case CallKind::kAllReduce:
        return {output, output};
      case CallKind::kReduce:
        if (output == nullptr) return {input, input};
        if (output != input) std::memcpy(output, input, call.input.nbytes());
        return {output, output};
      default:
        return {input, output};
    }
  }

  // Only the two ranks of a pair know how much they exchange, so the pieces are sent as messages.
  // An empty collective verifies that all ranks make the same call with splits.
  std::shared_ptr<Work> start_uneven(const comm::Collective& call) {
    const auto ticket = engine_->post(call.description, call.number, nullptr, nullptr, nullptr);
    const int rank = engine_->rank();
    const auto inputs = call.input.split_with_sizes(call.input_splits);
    const auto outputs = call.output.split_with_sizes(call.output_splits);
    Transfers transfers;
    const torch::NoGradGuard no_grad;
    outputs[rank].copy_(inputs[rank]);
    for (int step = 1; step < engine_->size(); ++step) {
      const int to = (rank + step) % engine_->size();
      const int from = (rank - step + engine_->size()) % engine_->size();
      transfers.push_back(post(CallKind::kRecv, outputs[from], from, kAllToAllTag));
      transfers.push_back(post(CallKind::kSend, inputs[to], to, kAllToAllTag));
    }
    return std::make_shared<TransferWork>(engine_, timeout_, std::move(transfers), ticket);
  }

  std::shared_ptr<Engine> engine_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

std::shared_ptr<comm::Backend> make(std::shared_ptr<Engine> engine,
                                    std::chrono::milliseconds timeout) {
  return std::make_shared<ShmBackend>(std::move(engine), timeout);
}

}  // namespace lockstep::shm
