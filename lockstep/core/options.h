// Checks of option structs: they are validated once, where they enter the library, with uniform
// messages.
//
//   OptionCheck check("Loader");
//   check.positive("batch_size", options.batch_size);
//   check.at_least("threads", options.threads, 0);
//
// Each check throws ConfigError: "Loader: batch_size must be at least 1, got 0".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// "loader must be one of native, cuda, dali, got 'nativ'; did you mean 'native'?"
std::string not_one_of(std::string_view name, std::string_view value,
                       const std::vector<std::string>& allowed);

class OptionCheck {
 public:
  /// `owner` is the class or command whose options are checked; it begins the message.
  explicit OptionCheck(std::string owner) : owner_(std::move(owner)) {}

  void at_least(std::string_view name, double value, double minimum) const;
  void positive(std::string_view name, double value) const;  ///< value > 0, finite
  void in_range(std::string_view name, double value, double minimum, double maximum) const;
  void one_of(std::string_view name, std::string_view value,
              const std::vector<std::string>& allowed) const;

 private:
  std::string owner_;
};

}  // namespace lockstep
