// Every module of torch::nn, with each of its options.
#include <tests/export/modules/module_list.h>

namespace lockstep::testing_support {

std::vector<ExportCase> module_cases() {
  torch::manual_seed(3);
  ModuleList list;
  add_linear_modules(list);
  add_convolution_modules(list);
  add_dropout_modules(list);
  add_embedding_modules(list);
  add_distance_modules(list);
  add_fold_modules(list);
  add_normalization_modules(list);
  add_padding_modules(list);
  add_window_pooling_modules(list);
  add_other_pooling_modules(list);
  add_image_modules(list);
  add_recurrent_modules(list);
  add_transformer_modules(list);
  add_activation_modules(list);
  add_loss_modules(list);
  return list.take();
}

}  // namespace lockstep::testing_support
