// An uneven all_to_all made of messages between each pair of ranks, which first exchange the sizes.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/backends/gloo/gloo_context.h>
#include <lockstep/comm/call/outcome.h>
#include <lockstep/comm/call/work.h>

namespace lockstep::gloo {

/// Must be used by one thread at a time, which GroupWork ensures.
class PairwiseWork final : public Work {
 public:
  /// A transfer under way: data received from one rank and sent to another.
  struct Exchange {
    int source = 0;
    std::int64_t expected = 0;  ///< elements from `source`
    torch::Tensor announced;    ///< int64, [1]: number of elements that `source` sends
    std::vector<std::shared_ptr<Work>> sizes;
    std::vector<std::shared_ptr<Work>> pieces;
  };

  PairwiseWork(std::shared_ptr<GlooContext> context, Call call, std::vector<Exchange> exchanges);
  ~PairwiseWork() override;

  /// Throws CommError and ends the group if a rank sends more or less than this rank expects.
  void wait(std::optional<std::chrono::milliseconds> timeout) override;
  bool is_completed() override;
  std::exception_ptr error() const override { return outcome_.error(); }

 private:
  bool move(const std::function<bool(Work&)>& complete);
  void compare(const Exchange& exchange);
  void end(std::exception_ptr error);

  const std::shared_ptr<GlooContext> context_;
  const Call call_;
  const comm::Watchdog::Ticket ticket_;
  std::vector<Exchange> exchanges_;
  comm::Outcome outcome_;
};

}  // namespace lockstep::gloo
