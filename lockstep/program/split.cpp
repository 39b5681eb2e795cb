#include <lockstep/program/split.h>

#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/choose_cuts.h>
#include <lockstep/program/graph_cuts.h>
#include <lockstep/program/program_parts.h>
#include <lockstep/program/unchanged_generator.h>

namespace lockstep {
namespace {

using program::Leaf;

constexpr int kMeasurements = 3;

// A batch of the size that the program was exported with. Zeros are valid class labels and tokens.
std::vector<c10::IValue> sample(const std::vector<Leaf>& leaves, const program::Home& from,
                                const program::Home& home) {
  std::vector<c10::IValue> values;
  for (const Leaf& leaf : leaves) {
    if (leaf.is_fixed) continue;
    if (!leaf.is_tensor) {
      values.emplace_back(std::int64_t{1});
      continue;
    }
    std::vector<std::int64_t> sizes;
    for (const program::Size& size : leaf.tensor.sizes) sizes.push_back(size.value);
    const auto type = leaf.dtype == from.type ? home.type : leaf.dtype;
    values.emplace_back(at::zeros(sizes, at::device(home.device).dtype(type)));
  }
  return values;
}

}  // namespace

std::vector<double> ProgramImpl::measured_costs(const std::vector<double>& bytes) const {
  std::vector<double> best(bytes.size(), std::numeric_limits<double>::infinity());
  try {
    const program::UnchangedGenerator generator;
    const torch::NoGradGuard no_grad;
    // Running the program changes buffers.
    const auto copy = std::dynamic_pointer_cast<ProgramImpl>(clone());
    for (int i = 0; i < kMeasurements; ++i) {
      Record record;
      copy->run_measured(sample(parts_->source->leaves, parts_->source->home, parts_->home),
                         &record);
      record.seconds.resize(best.size());
      for (std::size_t j = 0; j < best.size(); ++j) {
        best[j] = std::min(best[j], record.seconds[j]);
      }
    }
  } catch (const ConfigError&) {
    return bytes;  // the program does not accept a batch of zeros
  }
  return best;
}

std::vector<Program> split(const Program& program, int stages, const ProgramSplitOptions& options) {
  const ProgramImpl::Parts& parts = *program->parts_;
  const ProgramImpl::Source& source = *parts.source;
  if (stages < 1) throw ConfigError(str("split: stages must be at least 1, got ", stages));
  if (const std::string* const argument = program::changed_argument(source.graph)) {
    throw ConfigError(str("split: ", source.name, " changes its argument '",
                          formats::printable(*argument),
                          "' in place, so that it cannot be cut; use the whole program"));
  }
  const auto cuts = program::cuts_of(source.graph);
  std::vector<double> costs = program::bytes_of_nodes(source.graph);
  if (options.by_time && stages > 1) costs = program->measured_costs(costs);
  const auto begins = program::choose_cuts(str("split: ", source.name), cuts, costs, stages);
  std::map<std::string, torch::Tensor> tensors;
  const auto& inputs = source.graph.inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!program::is_user(inputs[i])) tensors[inputs[i].target] = parts.tensors[i];
  }
  std::vector<Program> result;
  auto graphs = program::stages_of(source.graph, cuts, begins);
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    std::vector<torch::Tensor> own;
    for (const auto& input : graphs[i].inputs) {
      own.push_back(program::is_user(input) ? torch::Tensor() : tensors.at(input.target));
    }
    auto stage = ProgramImpl::Source::make(str(source.name, ", stage ", i), std::move(graphs[i]),
                                           source.options, &source);
    result.emplace_back(
        std::shared_ptr<ProgramImpl>(new ProgramImpl(std::move(stage), std::move(own))));
    result.back()->parts_->set_home(parts.home);
    result.back()->follow_modes(*program);
  }
  return result;
}

}  // namespace lockstep
