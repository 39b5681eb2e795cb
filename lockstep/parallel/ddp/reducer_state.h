// The state of a Reducer. Internal: reducer_buckets.cpp makes its buckets and hooks, reducer.cpp
// follows a backward.
#pragma once

#include <torch/csrc/autograd/function_hook.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/parallel/ddp/forward_graphs.h>
#include <lockstep/parallel/ddp/reducer.h>
#include <lockstep/parallel/ddp/used_parameters.h>

namespace lockstep::parallel {

// One per parameter; autograd calls it after the parameter's gradient has been accumulated.
class ReducerHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  ReducerHook(std::weak_ptr<const void> owner, std::function<void()> call)
      : owner_(std::move(owner)), call_(std::move(call)) {}
  void operator()(const torch::autograd::Variable&) override { call_(); }
  bool belongs_to(const std::weak_ptr<const void>& owner) const {
    return !owner_.owner_before(owner) && !owner.owner_before(owner_);
  }

 private:
  std::weak_ptr<const void> owner_;
  std::function<void()> call_;
};

}  // namespace lockstep::parallel

namespace lockstep::detail {

class Reducer::State : public std::enable_shared_from_this<Reducer::State> {
 public:
  State(std::vector<NamedParameter> parameters, const std::vector<bool>& sparse, ProcessGroup group,
        const ReducerOptions& options);

  void add_hooks();
  void remove_hooks();
  void leave_shared_memory() noexcept;  // when the reducer ends
  void register_comm_hook(CommHook hook);
  void require_idle() const;
  void expect_backward();
  void forward_ended() { forward_graphs_.end(); }
  void reduce_without_backward();

  bool synchronize = true;
  std::int64_t arrivals = 0;
  std::vector<GradBucket> buckets;
  StepRecorder times;

 private:
  struct Slot {
    NamedParameter parameter;
    bool sparse = false;
    std::size_t bucket = 0;
    torch::Tensor view;  ///< the gradient inside the bucket's buffer; undefined if sparse
    /// Receives the mean of a sparse gradient.
    std::shared_ptr<torch::Tensor> mean = nullptr;
    // In the current backward:
    bool ready = false;   ///< its gradient is complete
    bool unused = false;  ///< ready without a gradient on this rank
    int calls = 0;        ///< number of calls of its hook
    /// With static_graph, once known: the number of calls in every backward.
    int expected_calls = 0;

    const std::string& name() const { return parameter.name; }
    torch::Tensor& gradient() const { return parameter.tensor.mutable_grad(); }
  };

  // The gradients for which a bucket waits.
  struct Members {
    std::vector<std::size_t> slots;
    std::size_t missing = 0;  ///< members that are not ready in this backward
  };

  // A hook that runs before a node of the enclosing graph; from there it tracks the outer backward.
  class OuterHook;

  // --- Buckets and hooks
  void make_buckets(const std::vector<std::size_t>& order);
  std::vector<std::vector<std::size_t>> assignment(const std::vector<std::size_t>& order) const;
  void rebuild();
  bool has_hook(const Slot& slot) const;

  // --- A backward, from its first gradient to its end
  void on_gradient(std::size_t index);
  void accept_gradient(Slot& slot);
  void keep_in_bucket(Slot& slot);
  void check_gradient(const Slot& slot, const torch::Tensor& gradient);
  void check_place(const Slot& slot, const torch::Tensor& tensor, const char* what) const;
  void check_parameters() const;
  void follow_backward();
  void follow_outer_backward();
  void begin(bool within_backward);
  void require_capturable() const;
  void mark_unused(Slot& slot);
  void mark_ready(Slot& slot);
  void start_full_buckets();
  std::shared_ptr<Work> start(std::size_t index);
  void help();
  void on_backward_end();
  void finish();
  void learn_graph();
  void take_results();
  void reset();

  // --- Errors
  template <class Function>
  void ending_group_on_error(Function&& function);
  [[noreturn]] void fail_for_missing_gradients();
  void check_call(const Slot& slot) const;

  bool learns() const { return options_.static_graph && !graph_known_; }

  ProcessGroup group_;
  const ReducerOptions options_;
  std::vector<Slot> slots_;
  std::vector<torch::Tensor> tensors_;  // the parameters
  std::vector<Members> members_;        // for each bucket
  CommHook comm_hook_;
  std::optional<parallel::UsedParameters> used_;  // over all ranks
  std::vector<std::size_t> arrived_;              // in the first backward
  bool order_known_ = false;  // the buckets follow it; they will not be rebuilt again
  bool graph_known_ = false;  // static_graph: expected_calls are known
  bool union_known_ = false;  // static_graph: used_ is known
  bool strides_told_ = false;
  bool backward_told_ = false;
  bool forward_seen_ = false;
  parallel::ForwardGraphs forward_graphs_;
  std::int64_t forwards_ = 0;  // forwards of the wrapper that no backward has followed yet
  // In the current backward:
  bool in_backward_ = false;
  int followed_task_ = -1;                    // the graph whose end calls on_backward_end()
  std::vector<std::shared_ptr<Work>> works_;  // for the buckets started, in order
  std::size_t ended_ = 0;                     // how many of works_ have been seen to end
};

}  // namespace lockstep::detail
