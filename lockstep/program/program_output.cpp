#include <lockstep/program/program_output.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/core/suggestion.h>

namespace lockstep {
namespace {

const torch::Tensor* find_tensor(const ProgramOutput& output) {
  if (output.is_tensor()) return &output.tensor();
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (const torch::Tensor* found = find_tensor(output[i])) return found;
  }
  return nullptr;
}

}  // namespace

const torch::Tensor& ProgramOutput::tensor() const {
  if (const auto* tensor = std::get_if<torch::Tensor>(&value_)) return *tensor;
  throw ConfigError(str("the program returns ", description(),
                        ", not a tensor; choose one of its values by name or index"));
}

const std::vector<std::string>& ProgramOutput::names() const {
  static const std::vector<std::string> nothing;
  return names_ != nullptr ? *names_ : nothing;
}

bool ProgramOutput::contains(std::string_view name) const {
  return std::find(names().begin(), names().end(), name) != names().end();
}

const ProgramOutput& ProgramOutput::operator[](std::size_t index) const {
  if (index < children_.size()) return children_[index];
  throw ConfigError(str("the program returns ", description(), ", which has no value ", index));
}

const ProgramOutput& ProgramOutput::operator[](std::string_view name) const {
  const auto found = std::find(names().begin(), names().end(), name);
  if (found != names().end()) return children_[static_cast<std::size_t>(found - names().begin())];
  throw ConfigError(str("the program returns ", description(), ", which has no '", name, "'",
                        did_you_mean(std::string(name), names())));
}

const torch::Tensor& ProgramOutput::first_tensor() const {
  if (const torch::Tensor* found = find_tensor(*this)) return *found;
  throw ConfigError(str("the program returns ", description(), ", which has no tensor"));
}

std::string ProgramOutput::description() const {
  if (is_leaf()) {
    static constexpr const char* kNames[] = {"None",     "a tensor", "a truth value",
                                             "a number", "a number", "a text"};
    return kNames[value_.index()];
  }
  const bool is_named = !names().empty();
  std::string text = is_named ? "{" : kind_ == Kind::kList ? "[" : "(";
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if (i != 0) text += ", ";
    if (is_named) text += str(names()[i], ": ");
    text += children_[i].description();
  }
  return text + (is_named ? "}" : kind_ == Kind::kList ? "]" : ")");
}

}  // namespace lockstep
