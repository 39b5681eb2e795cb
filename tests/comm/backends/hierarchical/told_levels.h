// A rank of a group of two levels, over levels that obey the test.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/backends/hierarchical/hierarchical.h>
#include <lockstep/comm/call/description.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/comm/waiting/progress.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/backend_oracle.h>

namespace lockstep::testing_support {

using RankLocations = std::vector<hierarchical::RankLocation>;

inline const RankLocations kTwoByTwo{{0, 0}, {0, 1}, {1, 0}, {1, 1}};

/// A level whose operations end when a test says so.
class Told final : public comm::Backend {
 public:
  class Operation final : public Work {
   public:
    void wait(std::optional<std::chrono::milliseconds>) override { throw Error("not used"); }
    bool is_completed() override { return has_ended; }
    std::exception_ptr error() const override { return failure; }
    bool has_ended = false;
    std::exception_ptr failure{};
  };

  const std::string& name() const override { return name_; }
  std::shared_ptr<Work> start(const comm::Collective& call) override {
    kinds.push_back(call.description.kind);
    descriptions.push_back(describe(call.description));
    numbers.push_back(call.number);
    operations.push_back(std::make_shared<Operation>());
    return operations.back();
  }
  std::shared_ptr<Work> send(torch::Tensor, int, comm::MessageTag) override {
    throw Error("not used");
  }
  std::shared_ptr<Work> recv(torch::Tensor, std::optional<int>, comm::MessageTag) override {
    throw Error("not used");
  }
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType type) override {
    return torch::zeros(shape, type);
  }
  void abort(const std::string& reason) override { reasons.push_back(reason); }
  void check() override {
    if (checks_before_failure > 0) {
      --checks_before_failure;
    } else if (failure) {
      std::rethrow_exception(failure);
    }
  }
  comm::Watchdog* watchdog() override { return watching.get(); }

  std::exception_ptr failure{};
  int checks_before_failure = 0;  ///< by which `failure` is not noticed yet
  std::unique_ptr<comm::Watchdog> watching{};
  std::vector<CallKind> kinds;
  std::vector<std::string> descriptions;  ///< the calls, whose tensors it does not hold
  std::vector<std::uint64_t> numbers;
  std::vector<std::shared_ptr<Operation>> operations;
  std::vector<std::string> reasons;  ///< why it was aborted

 private:
  const std::string name_ = "told";
};

// The stages of a sum on a host.
constexpr auto kUp = CallKind::kReduce;
constexpr auto kDown = CallKind::kBroadcast;

/// A rank of the first of two hosts.
struct ToldRank {
  explicit ToldRank(int rank, std::chrono::milliseconds timeout = std::chrono::seconds(30),
                    std::unique_ptr<comm::Watchdog> watchdog = nullptr,
                    std::shared_ptr<comm::Progress> progress = nullptr)
      : flat(over(std::move(watchdog))),
        caller(hierarchical::make({.rank = rank,
                                   .locations = kTwoByTwo,
                                   .local = local,
                                   .leaders = rank == 0 ? leaders : nullptr,
                                   .flat = flat,
                                   .progress = std::move(progress),
                                   .timeout = timeout}),
               rank, 4) {}
  std::shared_ptr<Work> start_sum() {
    return caller.start(CallKind::kAllReduce, {}, torch::ones({4}));
  }

  const std::shared_ptr<Told> local = std::make_shared<Told>();
  const std::shared_ptr<Told> leaders = std::make_shared<Told>();
  const std::shared_ptr<Told> flat;
  Caller caller;

 private:
  static std::shared_ptr<Told> over(std::unique_ptr<comm::Watchdog> watchdog) {
    auto level = std::make_shared<Told>();
    level->watching = std::move(watchdog);
    return level;
  }
};

}  // namespace lockstep::testing_support
