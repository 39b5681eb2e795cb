#include <lockstep/comm/backends/c10d/c10d_backend.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::c10d_adapter {
namespace {

constexpr const char* kAbortKey = "abort";
constexpr std::chrono::milliseconds kNoTimeout = c10d::Store::kNoTimeout;

// Gloo knows no abort: its waits look this often whether the group has ended.
constexpr std::chrono::milliseconds kAbortInterval{250};

// Gloo's texts begin with a path of its build and end with advice and a joke.
std::string essence(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  if (line.rfind("[/", 0) == 0 && line.find("] ") != std::string::npos) {
    line = line.substr(line.find("] ") + 2);
  }
  return line.substr(0, line.find(". This is typically"));
}

// What the operations of one group share.
struct Context {
  Context(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store,
          AdapterOptions options)
      : backend(std::move(backend)), store(std::move(store)), options(std::move(options)) {}
  // Gloo's destructor joins the thread of an operation that a peer never enters. Such a group is left to
  // the end of the process: no destructor of ours waits for a peer.
  ~Context() {
    if (abandoned) backend.release();
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  c10::intrusive_ptr<c10d::Backend> backend;
  c10::intrusive_ptr<c10d::Store> store;
  AdapterOptions options;
  mutable std::atomic<bool> abandoned = false;  ///< an operation was given up

  /// Why a rank ended the group; empty while it has not.
  std::string abort_reason() const {
    try {
      if (store->check({kAbortKey})) return store->get_to_str(kAbortKey);
    } catch (const std::exception&) {
      // The store went with rank 0; what broke will say so.
    }
    return "";
  }

  void throw_if_aborted() const {
    const std::string reason = abort_reason();
    if (!reason.empty()) throw CommError(reason);
  }

  std::string failure(const std::string& operation) const {
    return str("rank ", backend->getRank(), ": ", operation, " over ", options.name, " failed: ");
  }

  /// Turns the exception in flight into one of ours. Where a peer ended the group on purpose its
  /// reason says more than the broken connection that we saw.
  [[noreturn]] void rethrow(const std::string& operation) const {
    abandoned = true;
    std::string text;
    try {
      throw;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      text = essence(error.what());
    }
    throw_if_aborted();
    const std::string message = failure(operation) + text;
    if (text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos) {
      throw TimeoutError(message);
    }
    throw CommError(message);
  }
};

class C10dWork final : public Work {
 public:
  C10dWork(std::shared_ptr<const Context> context, c10::intrusive_ptr<c10d::Work> work,
           std::string operation, torch::Tensor divide = {})
      : context_(std::move(context)),
        work_(std::move(work)),
        operation_(std::move(operation)),
        divide_(std::move(divide)) {}

  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    if (finished_) return;
    try {
      if (context_->options.device.is_cuda()) {
        // Makes the stream wait, not this thread; the library's watchdog keeps the group's timeout.
        work_->wait(timeout.value_or(kNoTimeout));
      } else {
        wait_on_host(timeout.value_or(context_->options.timeout));
      }
    } catch (...) {
      context_->rethrow(operation_);
    }
    finish();
  }

  bool is_completed() override {
    if (!finished_ && work_->isCompleted()) wait(std::nullopt);
    return finished_;
  }

 private:
  void wait_on_host(std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    while (!work_->isCompleted()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
      if (left.count() == 0) {
        throw TimeoutError(lockstep::str(context_->failure(operation_), "timed out after ",
                                         static_cast<double>(timeout.count()) / 1e3, " s"));
      }
      try {
        work_->wait(std::min(left, kAbortInterval));
      } catch (const std::exception&) {
        if (work_->isCompleted()) throw;  // it failed; else this turn's time is over
        context_->throw_if_aborted();
      }
    }
    work_->wait(context_->options.timeout);  // complete: returns at once, or throws what went wrong
  }

  void finish() {
    finished_ = true;
    if (divide_.defined()) {
      const torch::NoGradGuard no_grad;
      divide_.div_(context_->backend->getSize());
    }
  }

  std::shared_ptr<const Context> context_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::string operation_;
  torch::Tensor divide_;
  bool finished_ = false;
};

class C10dBackend final : public Backend {
 public:
  explicit C10dBackend(std::shared_ptr<const Context> context) : context_(std::move(context)) {}

  const std::string& name() const override { return context_->options.name; }

  std::shared_ptr<Work> all_reduce(torch::Tensor tensor, ReduceOp op) override {
    const bool average = op == ReduceOp::kAverage;
    check_average(tensor, op);
    const bool divide = average && !context_->options.averages;
    c10d::AllreduceOptions options;
    options.reduceOp = average && !divide ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
    options.timeout = context_->options.timeout;
    return start("all_reduce", divide ? tensor : torch::Tensor(), [&] {
      std::vector<at::Tensor> tensors{flat_view(tensor, "all_reduce")};
      return context_->backend->allreduce(tensors, options);
    });
  }

  std::shared_ptr<Work> broadcast(torch::Tensor tensor, int root) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = context_->options.timeout;
    return start("broadcast", {}, [&] {
      std::vector<at::Tensor> tensors{flat_view(tensor, "broadcast")};
      return context_->backend->broadcast(tensors, options);
    });
  }

  std::shared_ptr<Work> barrier() override {
    c10d::BarrierOptions options;
    options.timeout = context_->options.timeout;
    return start("barrier", {}, [&] { return context_->backend->barrier(options); });
  }

  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    const auto options = torch::TensorOptions().dtype(dtype).device(context_->options.device);
    // NCCL registers what it allocates itself, and then reads it without a copy.
    if (context_->options.device.is_cuda() &&
        context_->backend->supportsTensorAlloc(context_->options.device.index())) {
      const auto count = c10::multiply_integers(shape);
      return context_->backend->allocateTensor(count, options).zero_().view(shape);
    }
    return torch::zeros(shape, options);
  }

  void check() override { context_->throw_if_aborted(); }

  void abort(const std::string& reason) override {
    aborted_ = true;
    try {
      context_->store->compareSet(kAbortKey, "", reason);
    } catch (const std::exception&) {
      // The store is gone with rank 0, and the group with it.
    }
    try {
      context_->backend->abort();
    } catch (const std::exception&) {
      // The peers find the reason in the store.
    }
  }

 private:
  template <class Call>
  std::shared_ptr<Work> start(const char* operation, torch::Tensor divide, Call&& call) {
    if (aborted_.load()) context_->throw_if_aborted();
    try {
      return std::make_shared<C10dWork>(context_, call(), operation, std::move(divide));
    } catch (...) {
      context_->rethrow(operation);
    }
  }

  // c10d wants contiguous tensors; a dense one in another order of dimensions (channels last) is
  // contiguous when seen flat.
  static at::Tensor flat_view(const torch::Tensor& tensor, const char* operation) {
    if (tensor.is_contiguous()) return tensor.detach();
    if (!tensor.is_non_overlapping_and_dense()) {
      throw ConfigError(lockstep::str(operation, ": this backend needs a tensor without gaps, got strides ",
                            tensor.strides(), " for shape ", tensor.sizes(),
                            "; call .contiguous() first"));
    }
    return tensor.detach().as_strided({tensor.numel()}, {1});
  }

  std::shared_ptr<const Context> context_;
  std::atomic<bool> aborted_ = false;  // by this rank: later calls need not ask the store
};

}  // namespace

std::shared_ptr<Backend> make(c10::intrusive_ptr<c10d::Backend> backend,
                              c10::intrusive_ptr<c10d::Store> store, AdapterOptions options) {
  return std::make_shared<C10dBackend>(
      std::make_shared<const Context>(std::move(backend), std::move(store), std::move(options)));
}

}  // namespace lockstep::c10d_adapter
