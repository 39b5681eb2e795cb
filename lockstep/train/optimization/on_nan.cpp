#include <lockstep/train/optimization/on_nan.h>

#include <lockstep/core/options.h>

namespace lockstep {
namespace {

const detail::NamedValues<OnNan>& named_nan_policies() {
  static const detail::NamedValues<OnNan> all = {
      {"warn", OnNan::kWarn}, {"stop", OnNan::kStop}, {"skip", OnNan::kSkip}};
  return all;
}

}  // namespace

const std::vector<std::string>& on_nan_names() { return named_nan_policies().names(); }

std::string to_string(OnNan policy) { return named_nan_policies().name_of(policy); }

OnNan parse_on_nan(const std::string& name) {
  return named_nan_policies().value_of("Trainer", "on_nan", name);
}

}  // namespace lockstep
