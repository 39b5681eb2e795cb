#include <lockstep/parallel/ddp/forward_graphs.h>

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>

namespace lockstep::parallel {

void ForwardGraphs::begin() {
  const std::uint64_t thread = at::RecordFunction::currentThreadId();
  const std::uint64_t now = at::sequence_number::peek();
  for (Nodes& forward : forwards_) {
    if (forward.thread == thread) forward.end = std::min(forward.end, now);
  }
  forwards_.push_back({thread, now, kOpen});
  if (forwards_.size() > kRemembered) forwards_.pop_front();
}

void ForwardGraphs::end() {
  if (forwards_.empty() || forwards_.back().end != kOpen) return;
  forwards_.back().end = at::sequence_number::peek();
}

bool ForwardGraphs::in_this_backward() const {
  const auto* const nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (nodes == nullptr) return false;
  return std::any_of(nodes->begin(), nodes->end(), [&](const torch::autograd::Node* node) {
    return std::any_of(forwards_.begin(), forwards_.end(), [&](const Nodes& forward) {
      const std::uint64_t number = node->sequence_nr();
      return node->thread_id() == forward.thread && number >= forward.begin && number < forward.end;
    });
  });
}

}  // namespace lockstep::parallel
