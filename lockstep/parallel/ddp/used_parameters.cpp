#include <lockstep/parallel/ddp/used_parameters.h>

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace lockstep::parallel {
namespace {

// Filled in ranges, because a copy from the host would wait for the device. Usually all parameters
// are used, and unused ones are adjacent.
void fill_on_device(const std::vector<bool>& used, const torch::Tensor& flags) {
  flags.fill_(1);
  for (std::size_t begin = 0; begin < used.size();) {
    std::size_t end = begin + 1;
    while (end < used.size() && used[end] == used[begin]) ++end;
    if (!used[begin]) {
      flags.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin))
          .zero_();
    }
    begin = end;
  }
}

}  // namespace

std::vector<bool> parameters_in_graph(const std::vector<torch::Tensor>& parameters) {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  const auto* limits = torch::autograd::get_current_graph_task_exec_info();
  std::vector<bool> used(parameters.size(), false);
  if (nodes == nullptr) return used;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    // A parameter without an accumulator is in no graph.
    const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameters[i]);
    if (!accumulator || nodes->count(&*accumulator) == 0) continue;
    // backward(..., inputs) runs only the nodes that lead to these inputs.
    if (limits != nullptr && !limits->empty()) {
      const auto found = limits->find(&*accumulator);
      if (found == limits->end() || !found->second.should_execute()) continue;
    }
    used[i] = true;
  }
  return used;
}

UsedParameters::UsedParameters(std::size_t count, ProcessGroup group)
    : group_(std::move(group)),
      flags_(group_.allocate({static_cast<std::int64_t>(count)}, torch::kUInt8)),
      used_(count, false) {}

void UsedParameters::start(const std::vector<bool>& used) {
  const torch::NoGradGuard no_grad;
  if (flags_.is_cpu()) {
    std::copy(used.begin(), used.end(), flags_.data_ptr<std::uint8_t>());
  } else {
    fill_on_device(used, flags_);
  }
  work_ = group_.async_all_reduce(flags_, ReduceOp::kMax);
}

void UsedParameters::finish() {
  work_->wait();
  work_.reset();
  is_read_ = false;
  if (flags_.is_cpu()) read();
}

void UsedParameters::read() {
  const torch::Tensor flags = flags_.cpu();
  const auto* begin = flags.const_data_ptr<std::uint8_t>();
  std::copy(begin, begin + used_.size(), used_.begin());
  is_read_ = true;
}

bool UsedParameters::anywhere(std::size_t index) {
  if (!is_read_) read();
  return used_[index];
}

}  // namespace lockstep::parallel
