#include <lockstep/parallel/distributed_data_parallel.h>

#include <numeric>
#include <optional>

#include <ATen/MemoryOverlap.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/optim/parameter_groups.h>
#include <lockstep/optim/tensor_kind.h>
#include <lockstep/parallel/ddp/agreement.h>
#include <lockstep/parallel/ddp/misuse_hint.h>
#include <lockstep/parallel/ddp/module_buffers.h>
#include <lockstep/parallel/ddp/reducer.h>
#include <lockstep/parallel/ddp/sparse_parameters.h>
#include <lockstep/parallel/ddp/wrapped_parameters.h>

namespace lockstep {
namespace {

// Tied weights have several names and one gradient.
std::vector<detail::NamedParameter> parameters_to_wrap(const torch::nn::Module& module) {
  std::vector<detail::NamedParameter> parameters;
  for (auto& [name, tensor] : trainable_parameters(module)) parameters.push_back({name, tensor});
  return parameters;
}

void broadcast_state(const torch::nn::Module& module, ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  std::vector<std::shared_ptr<Work>> works;
  std::vector<torch::Tensor> tensors = module.parameters();
  for (const torch::Tensor& buffer : module.buffers()) tensors.push_back(buffer);
  for (const torch::Tensor& tensor : tensors) {
    works.push_back(group.async_broadcast(tensor.detach(), 0));
  }
  for (const auto& work : works) work->wait();
}

std::size_t mebibytes(double value) { return static_cast<std::size_t>(value * (1 << 20)); }

// For each of `parameters`, whether its gradient is sparse.
std::vector<bool> sparse_ones(const torch::nn::Module& module,
                              const std::vector<detail::NamedParameter>& parameters,
                              const std::vector<std::string>& named) {
  std::vector<std::string> names = parallel::sparse_embeddings(module);
  names.insert(names.end(), named.begin(), named.end());
  std::vector<bool> sparse(parameters.size(), false);
  for (const std::string& name : names) {
    // Any name of a tied weight will do, so the tensors are compared.
    const torch::Tensor* tensor = module.named_parameters().find(name);
    if (tensor == nullptr) {
      throw ConfigError(lockstep::str("DistributedDataParallel: sparse_parameters names '", name,
                                      "', which the module does not have"));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].tensor.is_same(*tensor)) sparse[i] = true;
    }
  }
  return sparse;
}

// The reducer copies gradients that are already there to its buckets.
void require_fitting_gradients(const std::vector<detail::NamedParameter>& parameters) {
  for (const auto& [name, tensor] : parameters) {
    const torch::Tensor& gradient = tensor.grad();
    if (!gradient.defined() || optim::alike(gradient, tensor)) continue;
    throw ConfigError(lockstep::str("DistributedDataParallel: parameter '", name, "' is ",
                                    optim::kind_text(tensor), " and its gradient is ",
                                    optim::kind_text(gradient),
                                    "; reset the gradient before wrapping"));
  }
}

const char* text_of(bool value) { return value ? "true" : "false"; }

const char* text_of(ParameterMemory memory) {
  switch (memory) {
    case ParameterMemory::kAsIs:
      return "kAsIs";
    case ParameterMemory::kFlat:
      return "kFlat";
    case ParameterMemory::kShared:
      return "kShared";
  }
  return "?";
}

// One line per option and parameter, for the ranks to compare.
std::string described(const DdpOptions& options,
                      const std::vector<detail::NamedParameter>& parameters,
                      const std::vector<bool>& sparse) {
  std::vector<std::string> sparse_names;
  for (std::size_t i = 0; i < sparse.size(); ++i) {
    if (sparse[i]) sparse_names.push_back(parameters[i].name);
  }
  std::string lines;
  const auto add = [&](const char* name, const auto& value) {
    lines += lockstep::str("option ", name, ' ', value, '\n');
  };
  add("bucket_cap_mb", options.bucket_cap_mb);
  add("first_bucket_cap_mb", options.first_bucket_cap_mb);
  add("broadcast_buffers", text_of(options.broadcast_buffers));
  add("sync_batch_norm", text_of(options.sync_batch_norm));
  add("find_unused_parameters", text_of(options.find_unused_parameters));
  add("static_graph", text_of(options.static_graph));
  add("parameter_memory", text_of(options.parameter_memory));
  add("sparse_parameters (with those found)", lockstep::str('[', join(sparse_names), ']'));
  return lines;
}

// A rank cannot receive the values of a tensor whose elements share memory, as after expand().
void require_own_elements(const char* kind,
                          const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
  for (const auto& item : tensors) {
    if (item.value().layout() != torch::kStrided ||
        at::has_internal_overlap(item.value()) != at::MemOverlap::Yes) {
      continue;
    }
    throw ConfigError(lockstep::str("DistributedDataParallel: ", kind, " '", item.key(),
                                    "' has several elements at one address (shape ",
                                    item.value().sizes(), ", strides ", item.value().strides(),
                                    "); register a clone() of it"));
  }
}

// The checks that need no communication; returns which parameters have sparse gradients.
std::vector<bool> check_locally(const torch::nn::Module& module,
                                const std::vector<detail::NamedParameter>& parameters,
                                const DdpOptions& options) {
  constexpr double kMostMiB = 1e9;  // beyond any memory, yet its bytes still fit a size_t
  const OptionCheck check("DistributedDataParallel");
  check.positive("bucket_cap_mb", options.bucket_cap_mb);
  check.in_range("bucket_cap_mb", options.bucket_cap_mb, 0, kMostMiB);
  check.positive("first_bucket_cap_mb", options.first_bucket_cap_mb);
  check.in_range("first_bucket_cap_mb", options.first_bucket_cap_mb, 0, kMostMiB);
  if (parameters.empty()) {
    throw ConfigError(
        "DistributedDataParallel: the module has no parameter that requires a gradient");
  }
  require_own_elements("parameter", module.named_parameters());
  require_own_elements("buffer", module.named_buffers());
  detail::check_movable(parameters, options.parameter_memory);
  detail::refuse_other_hooks(parameters);
  require_fitting_gradients(parameters);
  return sparse_ones(module, parameters, options.sparse_parameters);
}

}  // namespace

struct DdpCore::Parts {
  std::optional<detail::ModuleBuffers> buffers;
  std::optional<SyncBatchNorm> sync_batch_norm;
  // Always set after construction, like the reducer.
  std::optional<detail::WrappedParameters> wrapped;
  std::optional<detail::Reducer> reducer;
  /// Reducer::arrivals() at the last forward that recorded a graph; empty before the first one.
  std::optional<std::int64_t> arrivals_at_forward;
};

DdpCore::DdpCore(torch::nn::Module& module, ProcessGroup group, const DdpOptions& options)
    : group_(std::move(group)), options_(options), parts_(std::make_unique<Parts>()) {
  auto parameters = parameters_to_wrap(module);
  std::vector<bool> sparse;
  std::string problem;
  try {
    sparse = check_locally(module, parameters, options);
  } catch (const ConfigError& error) {  // the other ranks must learn of it
    problem = error.what();
  }
  parallel::verify_agreement(module, described(options, parameters, sparse), problem, group_);
  {
    const SecondsScope scope(synchronization_seconds_);
    broadcast_state(module, group_);
  }
  if (group_.size() > 1 && options.broadcast_buffers) {
    parts_->buffers.emplace(module, group_);
    if (parts_->buffers->empty()) parts_->buffers.reset();
  }
  if (group_.size() > 1 && options.sync_batch_norm) {
    // In a shared group, its small messages would wait behind whole buckets. Over NCCL, kernels of
    // both groups run on the device at once: all ranks start them in backward's order, and each
    // occupies only a few multiprocessors, so neither group blocks the other.
    std::vector<int> all(static_cast<std::size_t>(group_.size()));
    std::iota(all.begin(), all.end(), 0);
    parts_->sync_batch_norm = convert_sync_batchnorm(module, *group_.new_group(all));
  }
  parts_->wrapped.emplace(module, parameters);
  parts_->reducer.emplace(std::move(parameters), sparse, group_,
                          detail::ReducerOptions{{mebibytes(options.first_bucket_cap_mb),
                                                  mebibytes(options.bucket_cap_mb)},
                                                 options.find_unused_parameters,
                                                 options.static_graph,
                                                 options.parameter_memory});
}

DdpCore::~DdpCore() = default;
DdpCore::DdpCore(DdpCore&&) noexcept = default;
DdpCore& DdpCore::operator=(DdpCore&&) noexcept = default;

// True if a forward has recorded a graph and no gradient has arrived since: that graph may hold
// buffers, which must not change.
bool DdpCore::graph_may_need_buffers() const {
  return parts_->arrivals_at_forward && *parts_->arrivals_at_forward == parts_->reducer->arrivals();
}

void DdpCore::require_all_wrapped() {
  const std::string problem = parts_->wrapped->why_not_all();
  if (problem.empty()) return;
  const ConfigError error(str("rank ", group_.rank(), ": ", problem));
  group_.abort(error.what());
  throw error;
}

void DdpCore::before_forward() {
  parts_->reducer->require_idle();
  require_all_wrapped();
  parts_->reducer->expect_backward();
  if (parts_->reducer->synchronizes() && !graph_may_need_buffers()) {
    parallel::with_hint("before a forward(), when buffers are sent", [&] { broadcast_buffers(); });
  }
  if (torch::GradMode::is_enabled()) parts_->arrivals_at_forward = parts_->reducer->arrivals();
}

void DdpCore::after_forward() { parts_->reducer->forward_ended(); }

void DdpCore::broadcast_buffers() {
  if (parts_->buffers) parts_->buffers->broadcast(buffer_source_);
}

void DdpCore::register_comm_hook(CommHook hook) {
  parts_->reducer->register_comm_hook(std::move(hook));
}

void DdpCore::step_without_backward() {
  if (!parts_->reducer->synchronizes()) return;
  before_forward();
  parts_->reducer->reduce_without_backward();
  parts_->arrivals_at_forward.reset();  // no forward, no graph
}

double DdpCore::communication_seconds() const { return parts_->reducer->times().exposed_seconds(); }

void DdpCore::settle_times() { parts_->reducer->settle_times(); }

const detail::Reducer* DdpCore::reducer() const { return &*parts_->reducer; }

DdpStatistics DdpCore::statistics() {
  settle_times();
  return detail::summarize(parts_->reducer->grad_buckets(), parts_->reducer->times(), group_);
}

void DdpCore::write_trace(const std::filesystem::path& path) {
  settle_times();
  detail::write_ddp_trace(path, parts_->reducer->grad_buckets(), parts_->reducer->times(), group_);
}

std::vector<Span> DdpCore::spans(const std::string& group_name) const {
  parts_->reducer->settle_times();
  std::vector<Span> spans =
      detail::ddp_spans(parts_->reducer->grad_buckets(), parts_->reducer->times(), group_name);
  // Backward reduces nothing: ZeRO's step reads the ranks' shared memory between barriers.
  if (options_.parameter_memory == ParameterMemory::kShared && group_.size() > 1) {
    std::erase_if(spans, [](const Span& span) { return span.track.starts_with("bucket "); });
  }
  return spans;
}

bool DdpCore::synchronize(bool on) {
  const bool before = parts_->reducer->synchronizes();
  parts_->reducer->set_synchronize(on);
  return before;
}

}  // namespace lockstep
