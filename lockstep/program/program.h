// Models that Python exported, as LibTorch modules.
//
//   torch.export.save(torch.export.export(model.train(), (images,)), "net.pt2")     # in Python
//
//   lockstep::Program net("net.pt2");                                               // in C++
//   torch::Tensor logits = net->forward(images);
//   torch::nn::functional::cross_entropy(logits, labels).backward();
//
// The operators are those that Python calls, in the same order, so that outputs, gradients and
// random numbers have the same bits. Parameters and buffers have Python's names: the state dict of
// a Program is that of the Python model.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/program/program_output.h>

namespace lockstep {

struct LOCKSTEP_API ProgramOptions {
  /// Namespaces of operators that the file may call. Name that of your own operators here; the
  /// library that defines them must be loaded.
  std::set<std::string, std::less<>> namespaces{"aten", "prims", "torchvision"};
  /// Whether a result is written to the memory of an operand that is not needed any more, where
  /// this gives the same bits. Python allocates memory for each result.
  bool in_place = true;
  /// Whether to call to_channels_last().
  bool channels_last = false;
};

/// An argument of a program that is passed to forward().
struct LOCKSTEP_API ProgramInput {
  std::string name{};  ///< "x", "input_ids", "batch.image" for a value of a dict `batch`
  std::string type{};  ///< "float32[s0, 3, 224, 224]", "int"
};

/// Arguments by their names.
using NamedInputs = std::map<std::string, c10::IValue>;

class Program;
struct ProgramSplitOptions;

/// A module that executes an exported program. forward() may run on several threads at a time if
/// the module's mode and device do not change meanwhile.
class LOCKSTEP_API ProgramImpl : public torch::nn::Module {
 public:
  /// Reads a file of torch.export.save, of PyTorch 2.7 or later. Its parameters lie on the CPU,
  /// wherever they were exported. Modules are in the mode in which they were exported. Throws
  /// DataError if the file cannot be read, and CheckpointError, which begins with the path, if it
  /// is damaged or has an operator that this LibTorch does not have.
  explicit ProgramImpl(const std::filesystem::path& path, const ProgramOptions& options = {});
  ~ProgramImpl() override;

  /// Calls the model with positional arguments, or with arguments by their names. All tensors of
  /// nested arguments (lists, dicts) count as arguments, in their order. Throws ConfigError in one
  /// line if an argument is missing or unknown, or has another dtype, number of dimensions or size
  /// than the model was exported for.
  template <class... Tensors>
    requires(std::convertible_to<const Tensors&, torch::Tensor> && ...)
  ProgramOutput forward(const torch::Tensor& first, const Tensors&... others) {
    return run({first, torch::Tensor(others)...});
  }
  ProgramOutput forward(const NamedInputs& inputs);
  /// Calls the model with any number of positional arguments.
  ProgramOutput forward(const std::vector<torch::Tensor>& inputs);
  /// Calls the model with the values of its inputs(), in order.
  ProgramOutput run(std::vector<c10::IValue> inputs);

  /// What run() takes.
  std::vector<ProgramInput> inputs() const;
  /// The structure of the output, with None for each value.
  ProgramOutput output_structure() const;

  /// Calls of operators that may behave otherwise in Python after train(), because they were
  /// exported in evaluation mode: attention without its dropout probability.
  const std::vector<std::string>& fixed_modes() const;

  /// Gives each module the mode of the module of the same name in `whole`, as a stage of a pipeline
  /// needs.
  void follow_modes(const torch::nn::Module& whole);

  /// For each batch normalization of the graph, the tensor by which convert_sync_batchnorm() knows
  /// its calls: the running mean, or else the weight. Throws ConfigError if one has neither, or
  /// lies in a part of the graph that cannot be synchronised.
  std::vector<torch::Tensor> batch_normalizations() const;

  /// Lays parameters and arguments of four dimensions out in memory as NHWC, the format
  /// channels_last, in which convolutions are faster. Results equal those of the contiguous format
  /// up to rounding, and random numbers are drawn in the order of the memory. Call it before
  /// optimizers and wrappers see the module. Throws ConfigError if an operator depends on strides.
  void to_channels_last();

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  friend std::vector<Program> split(const Program& program, int stages,
                                    const ProgramSplitOptions& options);
  struct Source;
  struct Parts;
  struct Record;
  // `tensors` are the parameters, buffers and constants, at the places of the graph's inputs.
  ProgramImpl(std::shared_ptr<const Source> source, std::vector<torch::Tensor> tensors);

  ProgramOutput run_measured(std::vector<c10::IValue> inputs, Record* record);
  void adopt(std::shared_ptr<const Source> source, std::vector<torch::Tensor> tensors);
  // The seconds of each node; `bytes` if the program cannot be measured.
  std::vector<double> measured_costs(const std::vector<double>& bytes) const;
  void move(const std::optional<torch::Device>& device, const std::optional<torch::Dtype>& dtype,
            bool non_blocking);
  void clone_(Module& other, const std::optional<torch::Device>& device) override;

  std::unique_ptr<Parts> parts_;
};

TORCH_MODULE(Program);

}  // namespace lockstep
