// Conditions on the sizes of arguments that an export has relied on.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::program {

/// Conditions in Python, such as "16*L['x'].size()[0] == 32", which PyTorch checks before each
/// call. Immutable.
class Guards {
 public:
  /// `leaves` are the names of the arguments, in the order of check(). `name` is the file's, for
  /// messages. Throws a CheckpointError if a condition is not understood.
  Guards(const std::vector<std::string>& conditions, const std::vector<std::string>& leaves,
         std::string name);

  /// Throws a ConfigError that states the first condition that `values` do not fulfil.
  void check(std::span<const c10::IValue> values) const;

  using Values = std::span<const c10::IValue>;
  using Expression = std::function<c10::IValue(Values)>;

 private:
  struct Guard {
    std::string text{};
    Expression condition{};
  };
  std::vector<Guard> guards_;
  std::string name_;
};

}  // namespace lockstep::program
