#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {

std::vector<ExportCase> operator_cases() {
  torch::manual_seed(1);
  CaseList cases;
  add_elementwise_cases(cases);
  add_comparison_cases(cases);
  add_activation_cases(cases);
  add_shape_cases(cases);
  add_padding_cases(cases);
  add_indexing_cases(cases);
  add_creation_cases(cases);
  add_edge_cases(cases);
  cases.set_adds_terms(true);
  add_convolution_cases(cases);
  add_pooling_cases(cases);
  add_normalization_cases(cases);
  add_matrix_cases(cases);
  add_attention_cases(cases);
  add_reduction_cases(cases);
  add_upsampling_cases(cases);
  add_recurrent_cases(cases);
  return cases.take();
}

}  // namespace lockstep::testing_support
