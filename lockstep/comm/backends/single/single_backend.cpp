#include <lockstep/comm/backends/single/single_backend.h>

#include <lockstep/core/error.h>

namespace lockstep::single {
namespace {

class CompletedWork final : public Work {
 public:
  void wait(std::optional<std::chrono::milliseconds>) override {}
  bool is_completed() override { return true; }
};

class SingleBackend final : public Backend {
 public:
  const std::string& name() const override {
    static const std::string name = "single";
    return name;
  }
  std::shared_ptr<Work> all_reduce(torch::Tensor, ReduceOp) override { return completed(); }
  std::shared_ptr<Work> broadcast(torch::Tensor, int) override { return completed(); }
  std::shared_ptr<Work> barrier() override { return completed(); }
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    return torch::zeros(shape, dtype);
  }
  void abort(const std::string& reason) override { reason_ = reason; }

 private:
  std::shared_ptr<Work> completed() const {
    if (!reason_.empty()) throw CommError(reason_);
    return std::make_shared<CompletedWork>();
  }

  std::string reason_;
};

}  // namespace

std::shared_ptr<Backend> make() { return std::make_shared<SingleBackend>(); }

}  // namespace lockstep::single
