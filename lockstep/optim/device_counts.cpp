#include <lockstep/optim/device_counts.h>

#include <map>
#include <utility>

namespace lockstep::detail {

DeviceCounts::DeviceCounts(const std::vector<bool>& takes_part, const std::int64_t* steps,
                           bool counts_steps, torch::Device device)
    : takes_part_(takes_part) {
  std::map<std::int64_t, std::vector<std::size_t>> by_steps;
  for (std::size_t i = 0; i < takes_part.size(); ++i) {
    if (takes_part[i]) by_steps[counts_steps ? steps[i] : 0].push_back(i);
  }
  for (auto& [made, members] : by_steps) {
    Count count{.members = std::move(members)};
    if (counts_steps) {
      count.steps =
          torch::full({}, made, torch::TensorOptions().dtype(torch::kInt64).device(device));
      count.number = count.steps.to(torch::kFloat32);
    }
    counts_.push_back(std::move(count));
  }
}

// Kernels take the number as float32, which represents all integers only up to 2^24.
void DeviceCounts::advance(const torch::Tensor& found_inf) {
  const torch::NoGradGuard no_grad;
  for (const Count& count : counts_) {
    if (!count.steps.defined()) continue;
    if (found_inf.defined()) {
      count.steps.add_(found_inf.view(at::IntArrayRef()).eq(0));
    } else {
      count.steps.add_(1);
    }
    count.number.copy_(count.steps);
  }
}

void DeviceCounts::fetch(std::int64_t* steps) const {
  for (const Count& count : counts_) {
    if (!count.steps.defined()) continue;
    const auto made = count.steps.item<std::int64_t>();
    for (const std::size_t i : count.members) steps[i] = made;
  }
}

}  // namespace lockstep::detail
