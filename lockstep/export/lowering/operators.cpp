#include <lockstep/export/lowering/operators.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace lockstep::onnx {
namespace {

const std::map<std::string_view, const Operator*>& operator_table() {
  static const auto table = [] {
    std::map<std::string_view, const Operator*> entries;
    for (const Family family :
         {activation_operators(), attention_operators(), comparison_operators(),
          convolution_operators(), creation_operators(), elementwise_operators(),
          indexing_operators(), matrix_operators(), normalization_operators(), padding_operators(),
          pooling_operators(), recurrent_operators(), reduction_operators(), shape_operators(),
          upsampling_operators()}) {
      for (const Operator& entry : family) {
        LOCKSTEP_CHECK(entries.emplace(entry.name, &entry).second, entry.name,
                       " has two lowerings");
      }
    }
    return entries;
  }();
  return table;
}

// Overloads whose arguments differ in meaning from those of the others.
constexpr std::pair<std::string_view, std::string_view> kOtherOverloads[] = {
    {"norm", "ScalarOpt_dtype"},
    {"round", "decimals"},
    {"view", "dtype"},
};

}  // namespace

const Operator* find_operator(const std::string& qualified_name) {
  constexpr std::string_view kPrefix = "aten::";
  std::string_view name = qualified_name;
  if (!name.starts_with(kPrefix)) return nullptr;
  name.remove_prefix(kPrefix.size());
  auto found = operator_table().find(name);
  if (found == operator_table().end() && name.ends_with('_')) {
    name.remove_suffix(1);
    found = operator_table().find(name);
  }
  return found == operator_table().end() ? nullptr : found->second;
}

bool has_other_arguments(const std::string& qualified_name, std::string_view overload) {
  const Operator* const entry = find_operator(qualified_name);
  if (entry == nullptr) return false;
  const std::pair<std::string_view, std::string_view> named = {entry->name, overload};
  return std::find(std::begin(kOtherOverloads), std::end(kOtherOverloads), named) !=
         std::end(kOtherOverloads);
}

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : operator_table()) names.emplace_back(name);
  return names;
}

}  // namespace lockstep::onnx
