// Operator cases: one file for each family of lowerings (lockstep/export/lowering/).
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tests/export/export_case.h>

namespace lockstep::testing_support {

// A module without parameters, for operators on inputs alone.
struct EmptyImpl : torch::nn::Module {};

class CaseList {
 public:
  /// `forward` takes one to three tensors and returns one, or a tuple or list of them.
  template <class Function>
  ExportCase& add(const std::string& op, Function forward, std::vector<MakeInput> inputs = {}) {
    if (inputs.empty()) inputs = {floats({3, 4})};
    ExportCase each{.name = name_for(op),
                    .op = op,
                    .module = std::make_shared<EmptyImpl>(),
                    .inputs = std::move(inputs),
                    .adds_terms = adds_terms_};
    each.forward = [forward](const Tensors& x) {
      Tensors outputs;
      if constexpr (std::is_invocable_v<Function, torch::Tensor>) {
        detail::append_outputs(forward(x[0]), outputs);
      } else if constexpr (std::is_invocable_v<Function, torch::Tensor, torch::Tensor>) {
        detail::append_outputs(forward(x[0], x[1]), outputs);
      } else {
        detail::append_outputs(forward(x[0], x[1], x[2]), outputs);
      }
      return outputs;
    };
    cases_.push_back(std::move(each));
    return cases_.back();
  }

  template <class ModuleHolder>
  ExportCase& add_net(const std::string& op, ModuleHolder net, MakeInput input) {
    cases_.push_back(case_of(name_for(op), op, std::move(net), std::move(input)));
    cases_.back().adds_terms = adds_terms_;
    return cases_.back();
  }

  /// Sets ExportCase::adds_terms of the following cases.
  void set_adds_terms(bool adds_terms) { adds_terms_ = adds_terms; }

  std::vector<ExportCase> take() { return std::move(cases_); }

 private:
  std::string name_for(const std::string& op) {
    int number = 1;
    for (const ExportCase& each : cases_) number += each.op == op ? 1 : 0;
    return number == 1 ? op : op + "_" + std::to_string(number);
  }

  std::vector<ExportCase> cases_;
  bool adds_terms_ = false;
};

void add_elementwise_cases(CaseList& cases);
void add_comparison_cases(CaseList& cases);
void add_activation_cases(CaseList& cases);
void add_convolution_cases(CaseList& cases);
void add_pooling_cases(CaseList& cases);
void add_normalization_cases(CaseList& cases);
void add_matrix_cases(CaseList& cases);
void add_attention_cases(CaseList& cases);
void add_shape_cases(CaseList& cases);
void add_padding_cases(CaseList& cases);
void add_indexing_cases(CaseList& cases);
void add_reduction_cases(CaseList& cases);
void add_creation_cases(CaseList& cases);
void add_upsampling_cases(CaseList& cases);
void add_recurrent_cases(CaseList& cases);
/// Special numbers: NaN, infinities, zeros of both signs, arguments with a tiny or huge result.
void add_edge_cases(CaseList& cases);

}  // namespace lockstep::testing_support
