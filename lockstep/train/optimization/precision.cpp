#include <lockstep/train/optimization/precision.h>

#include <ATen/autocast_mode.h>

#include <lockstep/core/options.h>
#include <lockstep/parallel/base/autocast_type_scope.h>

namespace lockstep {

namespace {

const detail::NamedValues<Precision>& named_precisions() {
  static const detail::NamedValues<Precision> all = {
      {"32", Precision::k32}, {"bf16", Precision::kBf16}, {"16", Precision::kFp16}};
  return all;
}

}  // namespace

std::string to_string(Precision precision) { return named_precisions().name_of(precision); }

const std::vector<std::string>& precision_names() { return named_precisions().names(); }

Precision parse_precision(const std::string& name) {
  return named_precisions().value_of("Trainer", "precision", name);
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
