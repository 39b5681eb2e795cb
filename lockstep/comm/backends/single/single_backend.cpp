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
  explicit SingleBackend(torch::Device device) : device_(device) {}

  const std::string& name() const override {
    static const std::string name = "single";
    return name;
  }
  std::shared_ptr<Work> all_reduce(torch::Tensor tensor, ReduceOp op) override {
    check_average(tensor, op);
    return completed();
  }
  std::shared_ptr<Work> broadcast(torch::Tensor, int) override { return completed(); }
  std::shared_ptr<Work> barrier() override { return completed(); }
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    return torch::zeros(shape, torch::TensorOptions().dtype(dtype).device(device_));
  }
  void abort(const std::string& reason) override {
    if (reason_.empty()) reason_ = reason;
  }
  void check() override {
    if (!reason_.empty()) throw CommError(reason_);
  }

 private:
  std::shared_ptr<Work> completed() {
    check();
    return std::make_shared<CompletedWork>();
  }

  torch::Device device_;
  std::string reason_;
};

}  // namespace

std::shared_ptr<Backend> make(torch::Device device) {
  return std::make_shared<SingleBackend>(device);
}

}  // namespace lockstep::single
