// The handle of an operation that is complete once it has been started.
#pragma once

#include <chrono>
#include <exception>
#include <optional>

#include <lockstep/comm/call/work.h>

namespace lockstep::comm {

class CompletedWork final : public Work {
 public:
  void wait(std::optional<std::chrono::milliseconds> /*timeout*/) override {}
  bool is_completed() override { return true; }
  std::exception_ptr error() const override { return nullptr; }
};

}  // namespace lockstep::comm
