#include <lockstep/train/task/step_reports.h>

#include <utility>

#include <lockstep/comm/call/device_stream.h>

namespace lockstep::train {

// Copies on the computing stream, because a graph's next step overwrites the same memory.
void StepReports::add(const StepReport& report, const torch::Tensor& loss_sum, std::int64_t parts) {
  const torch::NoGradGuard no_grad;
  const torch::Device device = loss_sum.device();
  const auto pinned = loss_sum.options().device(torch::kCPU).pinned_memory(true);
  torch::Tensor on_host = torch::empty(loss_sum.sizes(), pinned);
  on_host.copy_(loss_sum, /*non_blocking=*/true);
  waiting_.push_back({.report = report,
                      .loss_sum = std::move(on_host),
                      .parts = parts,
                      .arrived = comm::mark_stream(device)});
}

StepReport StepReports::take() {
  Waiting& oldest = waiting_.front();
  oldest.arrived.synchronize();
  oldest.report.loss = oldest.loss_sum.item<double>() / static_cast<double>(oldest.parts);
  StepReport report = oldest.report;
  waiting_.pop_front();
  return report;
}

}  // namespace lockstep::train
