#include <lockstep/train/optimization/precision.h>

#include <algorithm>

#include <ATen/autocast_mode.h>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/parallel/base/autocast_type_scope.h>

namespace lockstep {

namespace {

struct NamedPrecision {
  Precision precision;
  std::string name;
};

const std::vector<NamedPrecision>& named_precisions() {
  static const std::vector<NamedPrecision> all = {
      {Precision::k32, "32"}, {Precision::kBf16, "bf16"}, {Precision::kFp16, "16"}};
  return all;
}

}  // namespace

std::string to_string(Precision precision) {
  const auto& all = named_precisions();
  const auto found = std::find_if(all.begin(), all.end(), [&](const NamedPrecision& each) {
    return each.precision == precision;
  });
  LOCKSTEP_CHECK(found != all.end(), "Trainer: a precision without a name");
  return found->name;
}

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NamedPrecision& each : named_precisions()) all.push_back(each.name);
    return all;
  }();
  return names;
}

Precision parse_precision(const std::string& name) {
  OptionCheck("Trainer").one_of("precision", name, precision_names());
  const auto& all = named_precisions();
  return std::find_if(all.begin(), all.end(),
                      [&](const NamedPrecision& each) { return each.name == name; })
      ->precision;
}

AutocastScope::AutocastScope(Precision precision, torch::DeviceType device) : device_(device) {
  if (precision == Precision::k32) return;
  type_ = std::make_unique<detail::AutocastTypeScope>(
      device_, precision == Precision::kFp16 ? torch::kHalf : torch::kBFloat16);
  former_enabled_ = at::autocast::is_autocast_enabled(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!type_) return;
  // Casts of the weights are cached until the outermost scope ends.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, former_enabled_);
}

}  // namespace lockstep
