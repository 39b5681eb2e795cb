#include <lockstep/comm/backends/shm/shm_backend.h>


#include <utility>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/core/error.h>

namespace lockstep::shm {
namespace {

DataType data_type(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32: return DataType::kFloat32;
    case torch::kFloat64: return DataType::kFloat64;
    case torch::kFloat16: return DataType::kFloat16;
    case torch::kBFloat16: return DataType::kBFloat16;
    case torch::kInt32: return DataType::kInt32;
    case torch::kInt64: return DataType::kInt64;
    case torch::kUInt8: return DataType::kUInt8;
    default:
      throw ConfigError(lockstep::str("all_reduce: shared memory does not reduce ", tensor.scalar_type(),
                            " tensors; convert the tensor first"));
  }
}

class ShmWork final : public Work {
 public:
  // `dense` is what the engine works on; where the caller's tensor is not dense it is a copy, taken
  // back into `target` at the end.
  ShmWork(std::shared_ptr<Engine> engine, Engine::Ticket ticket, torch::Tensor dense,
          torch::Tensor target, std::chrono::milliseconds timeout)
      : engine_(std::move(engine)),
        ticket_(ticket),
        dense_(std::move(dense)),
        target_(std::move(target)),
        timeout_(timeout) {}

  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    if (finished_) return;
    engine_->wait(ticket_, timeout.value_or(timeout_));
    finish();
  }

  bool is_completed() override {
    if (!finished_ && engine_->test(ticket_)) finish();
    return finished_;
  }

 private:
  void finish() {
    finished_ = true;
    if (target_.defined()) {
      const torch::NoGradGuard no_grad;
      target_.copy_(dense_);
    }
  }

  std::shared_ptr<Engine> engine_;
  Engine::Ticket ticket_;
  torch::Tensor dense_;
  torch::Tensor target_;
  std::chrono::milliseconds timeout_;
  bool finished_ = false;
};

class ShmBackend final : public Backend {
 public:
  ShmBackend(std::shared_ptr<Engine> engine, std::chrono::milliseconds timeout)
      : engine_(std::move(engine)), timeout_(timeout) {}

  const std::string& name() const override {
    static const std::string name = "shm";
    return name;
  }

  std::shared_ptr<Work> all_reduce(torch::Tensor tensor, ReduceOp op) override {
    const DataType type = data_type(tensor);
    check_average(tensor, op);
    const auto [dense, target] = dense_form(tensor, "all_reduce");
    const auto ticket = engine_->post_all_reduce(bytes_of(dense),
                                                 static_cast<std::size_t>(dense.numel()), type, op,
                                                 std::make_shared<torch::Tensor>(dense));
    return std::make_shared<ShmWork>(engine_, ticket, dense, target, timeout_);
  }

  std::shared_ptr<Work> broadcast(torch::Tensor tensor, int root) override {
    const auto [dense, target] = dense_form(tensor, "broadcast");
    const auto ticket = engine_->post_broadcast(bytes_of(dense), dense.nbytes(), root,
                                                std::make_shared<torch::Tensor>(dense));
    return std::make_shared<ShmWork>(engine_, ticket, dense, target, timeout_);
  }

  std::shared_ptr<Work> barrier() override {
    return std::make_shared<ShmWork>(engine_, engine_->post_barrier(), torch::Tensor(),
                                     torch::Tensor(), timeout_);
  }

  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    const std::size_t bytes =
        static_cast<std::size_t>(c10::multiply_integers(shape)) * c10::elementSize(dtype);
    auto memory = engine_->allocate(bytes, timeout_);
    std::byte* data = memory.get();
    return torch::from_blob(
        data, shape, [memory = std::move(memory)](void*) mutable { memory.reset(); },
        torch::TensorOptions().dtype(dtype));
  }

  void abort(const std::string& reason) override { engine_->abort(reason); }
  void check() override { engine_->check(); }

 private:
  static std::byte* bytes_of(const torch::Tensor& tensor) {
    return static_cast<std::byte*>(tensor.data_ptr());
  }

  // A tensor whose elements fill its memory without holes is used in place, whatever the order of
  // its dimensions: the ranks' tensors have the same strides.
  static std::pair<torch::Tensor, torch::Tensor> dense_form(const torch::Tensor& tensor,
                                                            const char* operation) {
    if (!tensor.is_cpu()) {
      throw ConfigError(lockstep::str(operation, ": the shared-memory backend needs CPU tensors, got one on ",
                            tensor.device()));
    }
    if (tensor.is_non_overlapping_and_dense()) return {tensor, torch::Tensor()};
    return {tensor.contiguous(), tensor};
  }

  std::shared_ptr<Engine> engine_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

std::shared_ptr<Backend> make(std::shared_ptr<Engine> engine, std::chrono::milliseconds timeout) {
  return std::make_shared<ShmBackend>(std::move(engine), timeout);
}

}  // namespace lockstep::shm
