#include <lockstep/program/aliases.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include <lockstep/core/strings.h>

namespace lockstep::program {

std::optional<c10::OperatorHandle> find_operator(const std::string& target) {
  constexpr std::string_view prefix = "torch.ops.";
  const std::size_t first = target.find('.', prefix.size());
  const std::size_t last = target.rfind('.');
  if (!target.starts_with(prefix) || first == std::string::npos || first >= last) return {};
  std::string overload = target.substr(last + 1);
  if (overload == "default") overload.clear();
  return c10::Dispatcher::singleton().findSchema(
      {str(target.substr(prefix.size(), first - prefix.size()),
           "::", target.substr(first + 1, last - first - 1)),
       overload});
}

bool may_return_input(const Node& node) {
  constexpr std::string_view kTargets[] = {
      "torch.ops.aten.dropout.default", "torch.ops.aten.feature_dropout.default",
      "torch.ops.aten.alpha_dropout.default", "torch.ops.aten.feature_alpha_dropout.default"};
  return std::find(std::begin(kTargets), std::end(kTargets), node.target) != std::end(kTargets);
}

const std::string& AliasSets::root(const std::string& name) {
  auto found = parents_.try_emplace(name, name).first;
  while (found->second != found->first) found = parents_.find(found->second);
  return found->first;
}

void AliasSets::unite(const std::string& a, const std::string& b) {
  const std::string root_a = root(a), root_b = root(b);
  parents_[root_a] = root_b;
}

}  // namespace lockstep::program
