#include <lockstep/train/optimization/precision.h>

#include <ATen/autocast_mode.h>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/parallel/base/autocast_type_scope.h>

namespace lockstep {

std::string to_string(Precision precision) {
  switch (precision) {
    case Precision::k32:
      return "32";
    case Precision::kFp16:
      return "16";
    case Precision::kBf16:
      return "bf16";
  }
  throw InternalError("Trainer: a precision without a name");
}

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names = {"32", "bf16", "16"};
  return names;
}

Precision parse_precision(const std::string& name) {
  OptionCheck("Trainer").one_of("precision", name, precision_names());
  if (name == "32") return Precision::k32;
  return name == "16" ? Precision::kFp16 : Precision::kBf16;
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
