// Module cases: one file for each kind of modules of torch::nn.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tests/export/export_case.h>

namespace lockstep::testing_support {

class ModuleList {
 public:
  /// `inputs` are the arguments of forward().
  template <class Holder, class... Inputs>
  ExportCase& add(const char* module, const char* options, Holder net, Inputs... inputs) {
    return add_call(
        module, options, net,
        [](Holder& called, const auto&... arguments) { return called->forward(arguments...); },
        std::move(inputs)...);
  }

  /// `call` is given the module and the inputs.
  template <class Holder, class Call, class... Inputs>
  ExportCase& add_call(const char* module, const char* options, Holder net, Call call,
                       Inputs... inputs) {
    ExportCase each{.name = std::string(module) + "_" + std::to_string(cases_.size()),
                    .op = module,
                    .module = net.ptr(),
                    .inputs = {MakeInput(std::move(inputs))...},
                    .module_options = options,
                    .adds_terms = true};
    each.forward = [net, call](const Tensors& x) mutable {
      return called(net, call, x, std::make_index_sequence<sizeof...(Inputs)>());
    };
    cases_.push_back(std::move(each));
    return cases_.back();
  }

  std::vector<ExportCase> take() { return std::move(cases_); }

 private:
  template <class Holder, class Call, std::size_t... I>
  static Tensors called(Holder& net, Call& call, const Tensors& x, std::index_sequence<I...>) {
    Tensors outputs;
    detail::append_outputs(call(net, x[I]...), outputs);
    return outputs;
  }

  std::vector<ExportCase> cases_;
};

// Inputs with the batch in the second dimension, as sequences have it.
inline MakeInput sequence(std::int64_t steps, std::int64_t width) {
  return [=](std::int64_t batch) { return torch::randn({steps, batch, width}); };
}

inline ExportCase& with_batch_second(ExportCase& each) {
  each.options.batch_dimensions.assign(each.inputs.size(), 1);
  return each;
}

// image_modules.cpp
void add_convolution_modules(ModuleList& list);
void add_fold_modules(ModuleList& list);
void add_normalization_modules(ModuleList& list);
void add_padding_modules(ModuleList& list);
void add_window_pooling_modules(ModuleList& list);
void add_other_pooling_modules(ModuleList& list);
void add_image_modules(ModuleList& list);
// sequence_modules.cpp
void add_embedding_modules(ModuleList& list);
void add_recurrent_modules(ModuleList& list);
void add_transformer_modules(ModuleList& list);
// vector_modules.cpp
void add_linear_modules(ModuleList& list);
void add_dropout_modules(ModuleList& list);
void add_distance_modules(ModuleList& list);
void add_activation_modules(ModuleList& list);
void add_loss_modules(ModuleList& list);

}  // namespace lockstep::testing_support
