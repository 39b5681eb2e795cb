#include <lockstep/parallel/sync_batch_norm.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/batch_norm_native.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/parallel/sync_batch_norm_kernels.h>
#include <lockstep/program/program.h>

namespace lockstep {
namespace {

namespace kernels = sync_batch_norm_kernels;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<std::int64_t> all_but_channels(const Tensor& input) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

Tensor per_channel(const Tensor& values, const Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[1] = values.size(0);
  return values.view(shape);
}

struct Statistics {
  Tensor mean;       ///< [C], float64
  Tensor variance;   ///< biased
  double count = 0;  ///< values per channel, on all ranks
};

Statistics of_all_ranks(const Tensor& input, ProcessGroup& group) {
  const std::int64_t channels = input.size(1);
  const double count = input.numel() == 0 ? 0 : static_cast<double>(input.numel() / channels);
  const auto options = torch::TensorOptions().dtype(torch::kFloat64).device(input.device());
  Tensor own = torch::zeros({2 * channels + 1}, options);
  if (count > 0) {
    const bool is_wide = input.scalar_type() == torch::kFloat64;
    const auto [variance, mean] =
        torch::var_mean(is_wide ? input : input.to(torch::kFloat32), all_but_channels(input),
                        /*unbiased=*/false);
    own.narrow(0, 0, channels).copy_(mean);
    own.narrow(0, channels, channels).copy_(variance).mul_(count);
    own[2 * channels].fill_(count);
  }
  const Tensor all = torch::empty({group.size(), 2 * channels + 1}, options);
  group.all_gather_into_tensor(all, own);
  const Tensor counts = all.narrow(1, 2 * channels, 1);
  const Tensor means = all.narrow(1, 0, channels);
  Statistics statistics;
  statistics.count = counts.sum().item<double>();
  statistics.mean = (means * counts).sum(0) / statistics.count;
  const Tensor between = ((means - statistics.mean).square() * counts).sum(0);
  statistics.variance = (all.narrow(1, channels, channels).sum(0) + between) / statistics.count;
  return statistics;
}

void follow(const Tensor& running, const Tensor& value, double momentum) {
  if (running.defined()) running.detach().mul_(1 - momentum).add_(value.to(running), momentum);
}

// float16 and bfloat16 inputs are normalised in float32, as in PyTorch.
torch::ScalarType working_type(const Tensor& input) {
  return input.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(ProcessGroup given) : group(std::move(given)) {}
  ProcessGroup group;
};

c10::IValue held(const ProcessGroup& group) {
  return c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(group));
}

ProcessGroup group_held(const c10::IValue& value) {
  return c10::static_intrusive_pointer_cast<GroupHolder>(value.toCapsule())->group;
}

// The sum over the ranks as a differentiable function: every rank's result depends on every rank's
// part, so the gradient of a part is the sum of the gradients of all results.
struct SumOfAllRanks : torch::autograd::Function<SumOfAllRanks> {
  static Tensor forward(AutogradContext* context, const Tensor& part, const ProcessGroup& group) {
    context->saved_data["group"] = held(group);
    ProcessGroup ranks = group;
    Tensor sum = part.to(torch::kFloat64, /*non_blocking=*/false, /*copy=*/true).contiguous();
    ranks.all_reduce(sum);
    return sum.to(part.scalar_type());
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {apply(gradients[0], group_held(context->saved_data["group"])), Tensor()};
  }
};

// The arguments that take no gradient.
struct Settings {
  const Tensor& running_mean;
  const Tensor& running_var;
  double momentum;
  double eps;
  const ProcessGroup& group;
};

struct Normalisation : torch::autograd::Function<Normalisation> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const std::optional<Tensor>& given_weight,
                        const std::optional<Tensor>& given_bias, const Settings& settings) {
    ProcessGroup group = settings.group;
    const Tensor weight = given_weight.value_or(Tensor());
    const Tensor bias = given_bias.value_or(Tensor());
    context->saved_data["has_bias"] = bias.defined();
    context->saved_data["eps"] = settings.eps;
    context->saved_data["group"] = held(group);
    if (kernels::are_for(input)) return forward_by_kernels(context, input, weight, bias, settings);
    const Statistics statistics = of_all_ranks(input, group);
    if (statistics.count <= 1) {
      throw ConfigError(lockstep::str(
          "batch normalisation in training needs more than one value for each channel, the ranks "
          "together have ",
          statistics.count, " in an input of ", input.sizes()));
    }
    follow(settings.running_mean, statistics.mean, settings.momentum);
    follow(settings.running_var, statistics.variance * (statistics.count / (statistics.count - 1)),
           settings.momentum);
    const auto type = working_type(input);
    const Tensor mean = statistics.mean.to(type);
    const Tensor inverse = (statistics.variance + settings.eps).rsqrt().to(type);
    const Tensor factor = weight.defined() ? weight.to(type) * inverse : inverse;
    const Tensor offset = bias.defined() ? bias.to(type) - mean * factor : -mean * factor;
    const Tensor output =
        torch::addcmul(per_channel(offset, input), input.to(type), per_channel(factor, input));
    context->save_for_backward({input, weight, mean, inverse});
    context->saved_data["count"] = statistics.count;
    return output.to(input.scalar_type());
  }

  // The engine records this backward if a graph was requested (create_graph).
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (torch::GradMode::is_enabled()) return recorded_backward(context, gradients);
    return context->get_saved_variables().size() == kSavedByKernels
               ? backward_by_kernels(context, gradients)
               : fused_backward(context, gradients);
  }

 private:
  // Tensors saved on a device: input, weight, mean, inverse and counts. On a CPU the count is a
  // number.
  static constexpr std::size_t kSavedByKernels = 5;

  static Tensor forward_by_kernels(AutogradContext* context, const Tensor& given,
                                   const Tensor& weight, const Tensor& bias,
                                   const Settings& settings) {
    ProcessGroup group = settings.group;
    const Tensor input = kernels::laid_out(given);
    const kernels::Statistics statistics = kernels::gather(
        input, settings.running_mean, settings.running_var, settings.momentum, settings.eps, group);
    context->save_for_backward(
        {input, weight, statistics.mean, statistics.inverse, statistics.counts});
    return kernels::normalise(input, weight, bias, statistics, settings.eps);
  }

  static variable_list backward_by_kernels(AutogradContext* context,
                                           const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    ProcessGroup group = group_held(context->saved_data["group"]);
    const kernels::Gradients own =
        kernels::backward(gradients[0], saved[0], saved[1],
                          {.mean = saved[2], .inverse = saved[3], .counts = saved[4]}, group);
    return returned(context, saved[0], saved[1], own.input, own.weight, own.bias);
  }

  // The gradient through the statistics needs two sums over the values of all ranks: of dy, and of
  // dy times the normalised input (Ioffe, Szegedy 2015, section 3).
  static variable_list fused_backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &inverse = saved[3];
    const auto type = working_type(input);
    const std::int64_t channels = input.size(1);
    const Tensor x = input.to(type);
    const Tensor dy = gradients[0].to(type);
    const auto dimensions = all_but_channels(input);
    const Tensor sum_dy = dy.sum(dimensions);
    const Tensor sum_dy_x = ((dy * x).sum(dimensions) - mean * sum_dy) * inverse;
    Tensor sums = torch::cat({sum_dy, sum_dy_x}).to(torch::kFloat64);
    group_held(context->saved_data["group"]).all_reduce(sums);
    sums = (sums / context->saved_data["count"].toDouble()).to(type);
    const Tensor mean_dy = sums.narrow(0, 0, channels);
    const Tensor mean_dy_x = sums.narrow(0, channels, channels);
    const Tensor factor = weight.defined() ? weight.to(type) * inverse : inverse;
    const Tensor of_x = -factor * mean_dy_x * inverse;
    const Tensor offset = -factor * mean_dy - of_x * mean;
    const Tensor dx =
        torch::addcmul(torch::addcmul(per_channel(offset, input), x, per_channel(of_x, input)), dy,
                       per_channel(factor, input));
    return returned(context, input, weight, dx, sum_dy_x, sum_dy);
  }

  // Computes the same gradients with operations that autograd records, starting from the input: the
  // statistics depend on the inputs of all ranks, and so do their gradients. Costs two more
  // all-reduces.
  static variable_list recorded_backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &input = saved[0], &weight = saved[1];
    const auto type = working_type(input);
    const auto dimensions = all_but_channels(input);
    const ProcessGroup group = group_held(context->saved_data["group"]);
    const auto mean_of = [&](const Tensor& part) {
      const Tensor sum = SumOfAllRanks::apply(part, group);
      return saved.size() == kSavedByKernels ? sum / saved[4].sum()
                                             : sum / context->saved_data["count"].toDouble();
    };
    const Tensor x = input.to(type);
    const Tensor dy = gradients[0].to(type);
    const Tensor centered = x - per_channel(mean_of(x.sum(dimensions)), input);
    const Tensor variance = mean_of(centered.square().sum(dimensions));
    const Tensor inverse = (variance + context->saved_data["eps"].toDouble()).rsqrt();
    const Tensor normalised = centered * per_channel(inverse, input);
    const Tensor sum_dy = dy.sum(dimensions);
    const Tensor sum_dy_x = (dy * normalised).sum(dimensions);
    const Tensor means = mean_of(torch::cat({sum_dy, sum_dy_x}));
    const std::int64_t channels = input.size(1);
    const Tensor factor = weight.defined() ? weight.to(type) * inverse : inverse;
    const Tensor dx = per_channel(factor, input) *
                      (dy - per_channel(means.narrow(0, 0, channels), input) -
                       normalised * per_channel(means.narrow(0, channels, channels), input));
    return returned(context, input, weight, dx, sum_dy_x, sum_dy);
  }

  // One gradient for each argument of forward().
  static variable_list returned(AutogradContext* context, const Tensor& input, const Tensor& weight,
                                const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
    const Tensor none;
    return {dx.to(input.scalar_type()), weight.defined() ? dweight.to(weight.scalar_type()) : none,
            context->saved_data["has_bias"].toBool()
                ? dbias.to(weight.defined() ? weight.scalar_type() : dbias.scalar_type())
                : none,
            none};
  }
};

// --- Which normalisations ------------------------------------------------------------------------

// A BatchNorm's forward is not virtual, and modules hold it by its own type, so the module cannot
// be replaced. The operator it calls can: aten::batch_norm is dispatched here first, and falls
// through to the original kernel unless one of its tensors belongs to a synchronised module.
class Registry {
 public:
  using Key = const c10::TensorImpl*;

  static Registry& instance() {
    static Registry registry;
    return registry;
  }

  void add(Key key, ProcessGroup group) {
    const std::scoped_lock lock(mutex_);
    groups_.insert_or_assign(key, std::move(group));
    is_used_ = true;
  }
  void remove(Key key) {
    const std::scoped_lock lock(mutex_);
    groups_.erase(key);
    is_used_ = !groups_.empty();
  }
  bool has(Key key) {
    const std::scoped_lock lock(mutex_);
    return groups_.contains(key);
  }
  std::optional<ProcessGroup> find(const Tensor& tensor) {
    if (!is_used_ || !tensor.defined()) return std::nullopt;
    const std::scoped_lock lock(mutex_);
    const auto found = groups_.find(tensor.unsafeGetTensorImpl());
    return found == groups_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  Registry()
      : cpu_(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__),
        cuda_(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCUDA, __FILE__, __LINE__) {
    cpu_.impl("batch_norm", &batch_norm);
    cuda_.impl("batch_norm", &batch_norm);
  }

  static Tensor batch_norm(const Tensor& input, const std::optional<Tensor>& weight,
                           const std::optional<Tensor>& bias,
                           const std::optional<Tensor>& running_mean,
                           const std::optional<Tensor>& running_var, bool training, double momentum,
                           double eps, bool cudnn_enabled) {
    if (training) {
      auto group = instance().find(running_mean.value_or(Tensor()));
      if (!group) group = instance().find(weight.value_or(Tensor()));
      if (group) {
        return sync_batch_norm(input, weight.value_or(Tensor()), bias.value_or(Tensor()),
                               running_mean.value_or(Tensor()), running_var.value_or(Tensor()),
                               momentum, eps, *group);
      }
    }
    return at::native::batch_norm(input, weight, bias, running_mean, running_var, training,
                                  momentum, eps, cudnn_enabled);
  }

  std::mutex mutex_;  // guards groups_
  std::map<Key, ProcessGroup> groups_;
  std::atomic<bool> is_used_ = false;
  torch::Library cpu_;
  torch::Library cuda_;
};

template <class Module>
std::optional<Tensor> tensor_that_tells(const torch::nn::Module& module, const std::string& name) {
  const auto* const norm = module.as<Module>();
  if (norm == nullptr) return std::nullopt;
  if (norm->running_mean.defined()) return norm->running_mean;
  if (norm->weight.defined()) return norm->weight;
  throw ConfigError(lockstep::str("convert_sync_batchnorm: '", name,
                                  "' has neither running statistics nor weights: nothing tells it "
                                  "apart; give it track_running_stats(true) or affine(true)"));
}

// Adds the tensor by which a normalisation is known.
void add_norm(const Tensor& tensor, const std::string& name, std::vector<Tensor>& found) {
  if (tensor.is_complex()) {
    throw ConfigError(
        lockstep::str("convert_sync_batchnorm: '", name, "' is ", tensor.scalar_type(),
                      ", but batch normalisation is defined for real numbers only; keep it real"));
  }
  if (Registry::instance().has(tensor.unsafeGetTensorImpl())) {
    throw ConfigError(
        lockstep::str("convert_sync_batchnorm: '", name, "' is synchronised already"));
  }
  found.push_back(tensor);
}

// Recursive, because named_modules() would need a shared_ptr to the module.
void find_norms(const torch::nn::Module& module, const std::string& name,
                std::vector<Tensor>& found) {
  if (const auto* program = module.as<ProgramImpl>()) {
    for (const Tensor& tensor : program->batch_normalizations()) add_norm(tensor, name, found);
  }
  auto tensor = tensor_that_tells<torch::nn::BatchNorm2dImpl>(module, name);
  if (!tensor) tensor = tensor_that_tells<torch::nn::BatchNorm1dImpl>(module, name);
  if (!tensor) tensor = tensor_that_tells<torch::nn::BatchNorm3dImpl>(module, name);
  if (tensor) add_norm(*tensor, name, found);
  for (const auto& child : module.named_children()) {
    find_norms(*child.value(), name.empty() ? child.key() : name + "." + child.key(), found);
  }
}

}  // namespace

Tensor sync_batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                       const Tensor& running_mean, const Tensor& running_var, double momentum,
                       double eps, const ProcessGroup& group) {
  const auto given = [](const Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  for (const Tensor& tensor : {input, weight}) {
    if (!tensor.defined() || !tensor.is_complex()) continue;
    throw ConfigError(
        lockstep::str("sync_batch_norm: ", tensor.is_same(input) ? "the input" : "the weight",
                      " is ", tensor.scalar_type(),
                      ", expected a real floating-point type; normalise the real and imaginary "
                      "parts separately"));
  }
  return Normalisation::apply(input, given(weight), given(bias),
                              Settings{running_mean, running_var, momentum, eps, group});
}

class SyncBatchNorm::State {
 public:
  ~State() {
    for (const Tensor& tensor : tensors) {
      Registry::instance().remove(tensor.unsafeGetTensorImpl());
    }
  }
  std::vector<Tensor> tensors;  // held, so that no other tensors take their addresses
};

SyncBatchNorm::SyncBatchNorm(std::unique_ptr<State> state) : state_(std::move(state)) {}
SyncBatchNorm::~SyncBatchNorm() = default;
SyncBatchNorm::SyncBatchNorm(SyncBatchNorm&&) noexcept = default;
SyncBatchNorm& SyncBatchNorm::operator=(SyncBatchNorm&&) noexcept = default;
std::size_t SyncBatchNorm::size() const { return state_ ? state_->tensors.size() : 0; }

SyncBatchNorm convert_sync_batchnorm(torch::nn::Module& module, ProcessGroup group) {
  std::vector<Tensor> found;
  find_norms(module, "", found);
  found = optim::distinct(found);  // a module may be registered in several places
  auto state = std::make_unique<SyncBatchNorm::State>();
  for (const Tensor& tensor : found) {
    Registry::instance().add(tensor.unsafeGetTensorImpl(), group);
    state->tensors.push_back(tensor);
  }
  return SyncBatchNorm(std::move(state));
}

}  // namespace lockstep
