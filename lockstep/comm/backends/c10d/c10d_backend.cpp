#include <lockstep/comm/backends/c10d/c10d_backend.h>

#include <utility>

#include <lockstep/core/error.h>

namespace lockstep::c10d_adapter {
namespace {

constexpr const char* kAbortKey = "abort";

// What the operations of one group share.
struct Context {
  c10::intrusive_ptr<c10d::Backend> backend;
  c10::intrusive_ptr<c10d::Store> store;
  AdapterOptions options;

  /// Turns the exception in flight into one of ours. Where a peer ended the group on purpose its
  /// reason says more than the broken connection that we saw.
  [[noreturn]] void rethrow(const std::string& operation) const {
    std::string text;
    try {
      throw;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      text = first_line(error);
    }
    std::string reason;
    try {
      if (store->check({kAbortKey})) reason = store->get_to_str(kAbortKey);
    } catch (const std::exception&) {
      // The store went with rank 0; what we know is the text above.
    }
    if (!reason.empty()) throw CommError(reason);
    const std::string message =
        str("rank ", backend->getRank(), ": ", operation, " over ", options.name, " failed: ", text);
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
      work_->wait(timeout.value_or(context_->options.timeout));
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
  explicit C10dBackend(Context context)
      : context_(std::make_shared<const Context>(std::move(context))) {}

  const std::string& name() const override { return context_->options.name; }

  std::shared_ptr<Work> all_reduce(torch::Tensor tensor, ReduceOp op) override {
    const bool average = op == ReduceOp::kAverage;
    if (average && !tensor.is_floating_point()) {
      throw ConfigError(lockstep::str("all_reduce: the average of ", tensor.scalar_type(),
                            " is not defined; sum and divide yourself"));
    }
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

  void abort(const std::string& reason) override {
    try {
      context_->store->compareSet(kAbortKey, "", reason);
    } catch (const std::exception&) {
      // The store is gone with rank 0, and the group with it.
    }
    try {
      context_->backend->abort();
    } catch (const std::exception&) {
      // Gloo knows no abort: its peers see the connection end with this process.
    }
  }

 private:
  template <class Call>
  std::shared_ptr<Work> start(const char* operation, torch::Tensor divide, Call&& call) {
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
};

}  // namespace

std::shared_ptr<Backend> make(c10::intrusive_ptr<c10d::Backend> backend,
                              c10::intrusive_ptr<c10d::Store> store, AdapterOptions options) {
  return std::make_shared<C10dBackend>(
      Context{std::move(backend), std::move(store), std::move(options)});
}

}  // namespace lockstep::c10d_adapter
