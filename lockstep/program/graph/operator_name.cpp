#include <lockstep/program/graph/operator_name.h>

#include <lockstep/core/strings.h>
#include <lockstep/formats/printable.h>

namespace lockstep::program {

std::optional<OperatorName> operator_name(std::string_view target) {
  constexpr std::string_view prefix = "torch.ops.";
  if (!target.starts_with(prefix)) return std::nullopt;
  target.remove_prefix(prefix.size());
  const std::size_t dot = target.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view space = target.substr(0, dot);
  const std::string_view rest = target.substr(dot + 1);
  const std::size_t last = rest.rfind('.');
  OperatorName result{.name = str(space, "::", rest.substr(0, last))};
  if (last != std::string_view::npos) result.overload = rest.substr(last + 1);
  if (result.overload == "default") result.overload.clear();
  return result;
}

std::string call_text(const Node& node) {
  const auto known = operator_name(node.target);
  return str(formats::printable(known ? known->name : node.target),
             node.source.empty() ? "" : " at ", node.source);
}

}  // namespace lockstep::program
