// Checks of option structs, and tables of the names that an option takes (detail::NamedValues).
// Options are validated once, where they enter the library, with uniform messages:
//
//   OptionCheck check("Loader");
//   check.positive("batch_size", options.batch_size);
//   check.at_least("threads", options.threads, 0);
//
// Each check throws ConfigError: "Loader: batch_size must be at least 1, got 0".
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>

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

namespace detail {

/// The names that an option takes, each with its value: one table for checks, help texts and
/// `lockstep doctor`.
template <class Value>
class NamedValues {
 public:
  NamedValues(std::initializer_list<std::pair<const char*, Value>> entries) {
    for (const auto& [name, value] : entries) {
      names_.emplace_back(name);
      values_.push_back(value);
    }
  }

  /// In the order of the table.
  const std::vector<std::string>& names() const { return names_; }

  /// Throws ConfigError, whose message begins with `owner` and `option`, if `name` is not in the
  /// table.
  Value value_of(const char* owner, const char* option, std::string_view name) const {
    OptionCheck(owner).one_of(option, name, names_);
    return values_[place_of(name, names_)];
  }

  /// Throws InternalError if `value` is not in the table.
  const std::string& name_of(const Value& value) const {
    const std::size_t place = place_of(value, values_);
    LOCKSTEP_CHECK(place < names_.size(), "a value without a name; the names are ", join(names_));
    return names_[place];
  }

 private:
  template <class Wanted, class All>
  static std::size_t place_of(const Wanted& wanted, const All& all) {
    return static_cast<std::size_t>(std::find(all.begin(), all.end(), wanted) - all.begin());
  }

  std::vector<std::string> names_;
  std::vector<Value> values_;
};

}  // namespace detail

}  // namespace lockstep
