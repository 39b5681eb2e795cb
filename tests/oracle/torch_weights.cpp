// torch_weights MODEL CLASSES WEIGHTS IN OUT: loads WEIGHTS, a file written by Python, into
// resnet18, resnet34 or resnet50 with CLASSES classes; a MODEL that ends with "-cifar" is the
// variant for CIFAR-10's images. Writes to OUT the logits of the tensor "images" in IN, and the
// net's weights. Prints what load_pretrained() left out. Used by torch_weights_oracle.py.
#include <cstdlib>
#include <iostream>
#include <string>

#include <torch/types.h>

#include <lockstep/core/error.h>
#include <lockstep/models/resnet.h>
#include <lockstep/train/checkpoints/pretrained.h>
#include <lockstep/train/checkpoints/state_dict_file.h>

namespace {

using namespace lockstep;

ResNet make_resnet(const std::string& model, std::int64_t classes) {
  const auto stem = model.ends_with("-cifar") ? ResNetStem::kCifar : ResNetStem::kImageNet;
  if (model.starts_with("resnet18")) return resnet18(stem, classes);
  if (model.starts_with("resnet34")) return resnet34(stem, classes);
  if (model.starts_with("resnet50")) return resnet50(stem, classes);
  throw ConfigError("MODEL must be resnet18, resnet34 or resnet50, got " + model);
}

void run(const std::string& model, std::int64_t classes, char** files) {
  torch::manual_seed(1);
  ResNet net = make_resnet(model, classes);
  const PretrainedWeights loaded = load_pretrained(*net, load_state_dict_file(files[0]), "weights");
  std::cout << loaded.summary() << '\n';
  net->eval();
  const torch::NoGradGuard no_grad;
  StateDict result = {{"logits", net->forward(load_state_dict_file(files[1]).at(0).second)}};
  for (const auto& [name, tensor] : state_dict(*net)) result.emplace_back("net." + name, tensor);
  save_torch_file(files[2], result);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: torch_weights MODEL CLASSES WEIGHTS IN OUT\n";
    return 2;
  }
  try {
    run(argv[1], std::atoll(argv[2]), argv + 3);
  } catch (const std::exception& error) {
    std::cerr << "error: " << first_line(error) << '\n';
    return exit_code(error);
  }
}
