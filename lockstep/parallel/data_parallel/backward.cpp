#include <lockstep/parallel/data_parallel/backward.h>

#include <exception>
#include <iterator>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/base/caller_state.h>
#include <lockstep/parallel/base/thread_share.h>
#include <lockstep/parallel/data_parallel/gradient_sum.h>

namespace lockstep::detail::data_parallel {
namespace {

using torch::autograd::edge_list;
using torch::autograd::variable_list;

// std::shared_ptr<Node> in LibTorch 2.11, c10::intrusive_ptr<Node> in 2.13.
using NodePointer = decltype(torch::autograd::Edge::function);

template <class T, class... Arguments>
NodePointer make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>) {
    return NodePointer(new T(std::forward<Arguments>(arguments)...));
  } else {
    return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
  }
}

// The backward of one replica's graph: the arguments of autograd's engine, and its results.
struct ReplicaTask {
  edge_list roots;
  variable_list gradients;
  edge_list leaves;
  std::vector<std::size_t> targets;  // index of the target of each leaf
  variable_list results;             // for the leaves

  bool is_empty() const { return roots.empty() || leaves.empty(); }
  // If leaves are given, the engine returns their gradients and accumulates nothing.
  void run(bool keep_graph) {
    results = torch::autograd::Engine::get_default_engine().execute(
        roots, gradients, keep_graph, /*create_graph=*/false, /*accumulate_grad=*/false, leaves);
  }
};

class DataParallelBackward final : public torch::autograd::Node {
 public:
  DataParallelBackward(std::vector<GatheredTensor> outputs, StepGraph graph,
                       std::shared_ptr<ThreadTeam> team, std::vector<torch::Device> devices)
      : outputs_(std::move(outputs)),
        graph_(std::move(graph)),
        team_(std::move(team)),
        devices_(std::move(devices)) {}

  std::string name() const override { return "DataParallelBackward"; }

  // Called by the engine after a backward that does not retain the graph.
  void release_variables() override {
    const std::scoped_lock lock(mutex_);
    outputs_.clear();
    graph_.parts.clear();
    is_released_ = true;
  }

 protected:
  variable_list apply(variable_list&& gradients) override {
    const std::scoped_lock lock(mutex_);
    if (at::GradMode::is_enabled()) {
      throw ConfigError(
          "DataParallel: a backward with create_graph cannot go through the outputs of forward() "
          "and loss(); take the inner gradient inside of the module or the criterion, where a "
          "replica has a graph of its own");
    }
    TORCH_CHECK(!is_released_, torch::autograd::ERR_BACKWARD_TWICE);
    std::vector<ReplicaTask> tasks;
    for (std::size_t p = 0; p < graph_.parts.size(); ++p) tasks.push_back(task_of(p, gradients));
    run(tasks, torch::autograd::get_current_graph_task_keep_graph());
    return combined(tasks);
  }

 private:
  ReplicaTask task_of(std::size_t part, const variable_list& gradients) const;
  void run(std::vector<ReplicaTask>& tasks, bool keep_graph) const;
  template <class Function>
  void named_by_replicas(const Function& function) const;
  variable_list combined(std::vector<ReplicaTask>& tasks) const;
  torch::Tensor rows_joined(std::size_t target, const std::vector<variable_list>& by_part) const;

  std::vector<GatheredTensor> outputs_;  // with a graph, in the order of this node's inputs
  StepGraph graph_;                      // its targets are this node's next edges
  std::shared_ptr<ThreadTeam> team_;
  std::vector<torch::Device> devices_;
  bool is_released_ = false;
};

ReplicaTask DataParallelBackward::task_of(std::size_t part, const variable_list& gradients) const {
  ReplicaTask task;
  for (const StepGraph::Leaf& leaf : graph_.parts[part].leaves) {
    if (!task_should_compute_output(leaf.target)) continue;
    task.leaves.push_back(leaf.edge);
    task.targets.push_back(leaf.target);
  }
  if (task.leaves.empty()) return task;
  for (std::size_t k = 0; k < outputs_.size(); ++k) {
    if (!gradients[k].defined() || !outputs_[k].root(part).is_valid()) continue;
    task.roots.push_back(outputs_[k].root(part));
    task.gradients.push_back(outputs_[k].gradient_of_part(gradients[k], part));
  }
  return task;
}

// The engine does not report which replica's graph threw, so the error names all replicas.
template <class Function>
void DataParallelBackward::named_by_replicas(const Function& function) const {
  const auto text = [&](const std::string& what) {
    std::string names;
    for (const torch::Device& device : devices_) {
      names += lockstep::str(names.empty() ? "" : ", ", device);
    }
    return lockstep::str("the backward of the replicas on ", names, ": ", what);
  };
  try {
    function();
  } catch (const ConfigError& error) {
    throw ConfigError(text(first_line(error)));
  } catch (const std::exception& error) {
    throw Error(text(first_line(error)));
  } catch (...) {
    throw Error(text(kForeignException));
  }
}

void DataParallelBackward::run(std::vector<ReplicaTask>& tasks, bool keep_graph) const {
  if (devices_.front().is_cpu()) {
    // The engine computes all CPU work of a backward on the calling thread.
    const parallel::CallerState caller(devices_);
    release_helping_threads();
    team_->run([&](std::size_t replica) {
      for (std::size_t p = 0; p < tasks.size(); ++p) {
        if (graph_.parts[p].replica != replica || tasks[p].is_empty()) continue;
        const parallel::CallerState::Scope scope(caller, replica);
        tasks[p].run(keep_graph);
      }
    });
    return;
  }
  // The engine has a thread for each GPU. This code may run on the first GPU's thread, which
  // continues its work while it waits only if it calls the engine itself.
  ReplicaTask all;
  for (const ReplicaTask& task : tasks) {
    if (task.is_empty()) continue;
    all.roots.insert(all.roots.end(), task.roots.begin(), task.roots.end());
    all.gradients.insert(all.gradients.end(), task.gradients.begin(), task.gradients.end());
    all.leaves.insert(all.leaves.end(), task.leaves.begin(), task.leaves.end());
  }
  if (all.is_empty()) return;
  named_by_replicas([&] { all.run(keep_graph); });
  auto next = all.results.begin();
  for (ReplicaTask& task : tasks) {
    if (task.is_empty()) continue;
    const auto end = next + static_cast<std::ptrdiff_t>(task.leaves.size());
    task.results.assign(std::make_move_iterator(next), std::make_move_iterator(end));
    next = end;
  }
}

variable_list DataParallelBackward::combined(std::vector<ReplicaTask>& tasks) const {
  std::vector<variable_list> rows, summands;  // by part, then by target
  for (ReplicaTask& task : tasks) {
    rows.emplace_back(graph_.targets.size());
    summands.emplace_back(graph_.targets.size());
    for (std::size_t i = 0; i < task.results.size(); ++i) {
      torch::Tensor& result = task.results[i];
      if (!result.defined()) continue;
      const std::size_t target = task.targets[i];
      torch::Tensor& place = (graph_.targets[target].is_scattered ? rows : summands).back()[target];
      place = place.defined() ? gradient_sum(place, result) : std::move(result);
    }
  }
  variable_list gradients = sum_gradients(std::move(summands), devices_.front());
  for (std::size_t t = 0; t < graph_.targets.size(); ++t) {
    torch::Tensor& gradient = gradients[t];
    if (graph_.targets[t].is_scattered) gradient = rows_joined(t, rows);
    const torch::Device device = graph_.targets[t].options.device();
    if (gradient.defined() && gradient.device() != device) {
      gradient = gradient.to(gradient.options().device(device));
    }
  }
  return gradients;
}

torch::Tensor DataParallelBackward::rows_joined(std::size_t target,
                                                const std::vector<variable_list>& by_part) const {
  const StepGraph::Target& wanted = graph_.targets[target];
  std::vector<torch::Tensor> joined;
  bool any = false;
  for (std::size_t p = 0; p < by_part.size(); ++p) {
    const torch::Tensor& rows = by_part[p][target];
    any = any || rows.defined();
    if (rows.defined()) {
      joined.push_back(rows.to(wanted.options));
      continue;
    }
    std::vector<std::int64_t> sizes = wanted.row_sizes;
    sizes.insert(sizes.begin(), graph_.parts[p].rows);
    joined.push_back(torch::zeros(sizes, wanted.options));
  }
  return any ? torch::cat(joined) : torch::Tensor();
}

}  // namespace

void attach_backward(std::vector<GatheredTensor>& outputs, StepGraph graph,
                     std::shared_ptr<ThreadTeam> team, std::vector<torch::Device> devices) {
  std::vector<GatheredTensor> with_graph;
  std::vector<torch::Tensor> tensors;
  for (const GatheredTensor& output : outputs) {
    if (!output.has_roots()) continue;
    with_graph.push_back(output);
    with_graph.back().drop_tensor();
    tensors.push_back(output.tensor());
  }
  if (tensors.empty()) return;
  edge_list edges;
  for (const StepGraph::Target& target : graph.targets) edges.push_back(target.edge);
  const NodePointer node = make_node<DataParallelBackward>(std::move(with_graph), std::move(graph),
                                                           std::move(team), std::move(devices));
  node->set_next_edges(std::move(edges));
  for (const torch::Tensor& tensor : tensors) torch::autograd::set_history(tensor, node);
}

}  // namespace lockstep::detail::data_parallel
