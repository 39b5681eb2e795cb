// A StepGraph on the CPU: records LibTorch's operations without executing them, and replays them.
#pragma once

#include <functional>
#include <string>

#include <lockstep/train/step_graph.h>
#include <tests/support/recorded_calls.h>

namespace lockstep::testing_support {

/// Appends a letter to `events` for each call: w (warm-up), c (capture), r (replay).
class RecordedGraph final : public detail::StepGraph {
 public:
  explicit RecordedGraph(std::string* events) : events_(events) {}

  void warm_up(const std::function<void()>& work) override {
    *events_ += 'w';
    work();
  }
  void capture(const std::function<void()>& work) override {
    *events_ += 'c';
    calls_.record(work);
  }
  void replay() override {
    *events_ += 'r';
    calls_.replay();
  }

 private:
  std::string* const events_;
  RecordedCalls calls_;
};

}  // namespace lockstep::testing_support
