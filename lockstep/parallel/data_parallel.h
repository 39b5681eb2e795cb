// DataParallel: one process, one replica of the model on each device, one thread for each replica.
//
//   lockstep::DataParallel dp(net, {torch::Device("cuda:0"), torch::Device("cuda:1")});
//   for (...) {
//     optimizer.zero_grad();
//     auto loss = dp.loss(criterion, x, y);    // or criterion(dp.forward(x), y)
//     loss.backward();                         // the gradients are net's
//     optimizer.step();
//   }
//
// Behaves like torch.nn.DataParallel: the batch is split along its first dimension, each replica
// computes its part on its own device, and backward adds up the gradients in the module's
// parameters. The optimizer, checkpoints and everything else use the module itself.
// DistributedDataParallel, with one process per device, is faster on several GPUs and can span
// hosts; DataParallel needs no launcher.
//
// There are two forms. forward() gathers the outputs on the first device, where the program
// computes the loss. loss() computes the loss on every device and gathers only the losses, which
// balances memory and work.
//
// {"cpu", "cpu"} runs the replicas on threads that divide the processors among them. These replicas
// share the module's parameters, so no step copies parameters.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/parallel/base/wrapped_module.h>
#include <lockstep/parallel/data_parallel/core.h>
#include <lockstep/parallel/data_parallel/devices.h>
#include <lockstep/parallel/data_parallel/flattened.h>

namespace lockstep {

/// `Module` is a ModuleHolder such as Net or torch::nn::Sequential, or a shared_ptr to a module.
/// The module must be on the first device and must be cloneable: it and its submodules derive from
/// torch::nn::Cloneable<T> and register everything in reset(), as LibTorch's own modules do. With
/// one device there are no replicas and nothing is cloned: forward() moves the tensors of its
/// arguments to that device and calls the module's own forward().
///
/// Arguments: all tensors that have dimensions are scattered along the first one, in which they
/// must agree. Tensors without dimensions, numbers, strings and other values are passed to every
/// replica unchanged. Arguments and outputs can have any structure that for_each_tensor() supports,
/// arbitrarily nested: tuples, vectors, maps, dictionaries, structs. A batch with fewer samples
/// than devices leaves some replicas idle. Outputs are concatenated tensor by tensor along the
/// first dimension; tensors without dimensions become a vector with one element per replica that
/// had work. All other values in an output are taken from the first replica.
///
/// Replicas are kept between steps, and each forward synchronizes them with the module: its
/// parameters, even if they were moved to other memory, their requires_grad, and which of its
/// modules are in training mode. Every GPU but the first receives its parameters in one copy per
/// dtype. Everything else in a module is copied at construction only: after a change of options,
/// such as a dropout rate, make a new DataParallel. A replica's forward() must not modify
/// parameters, and the module does not see what a replica's forward() assigns to members.
///
/// Buffers: every replica begins a forward with the module's values. The first replica writes into
/// the module's own buffers, so running statistics, such as BatchNorm's, reflect only its part of
/// the batch. The other replicas have copies, which each forward overwrites. This costs a small
/// copy per step, also between CPUs.
///
/// Gradients reach the module's parameters, and the inputs that require them, as with any autograd
/// graph: they accumulate, hooks run, and torch::autograd::grad, several forwards before a
/// backward, and retain_graph work. They are added in the order of the replicas. A backward with
/// create_graph throws a ConfigError. Dropping the outputs frees the replicas' graphs.
///
/// A tensor that requires a gradient and reaches the replicas in another way, such as a weight of
/// the criterion or a tensor captured by a lambda, would lose its gradient. So would a parameter of
/// the module used directly in a criterion: `mse(...) + 1e-4 * net->weight.square().sum()`; add
/// such a term to the result of loss() instead. forward() and loss() throw a ConfigError for a
/// tensor that the first two replicas with samples both use in this way. Other such uses are not
/// detected.
///
/// Threads: only one thread at a time may call a DataParallel. forward() and the criterion run on
/// several threads at once, with the caller's gradient mode, inference mode, autocast settings and
/// current streams. On CPUs the constructor divides its caller's at::get_num_threads() threads
/// among the replicas, at least 1 for each. Random numbers come from the device's generator.
/// Replicas on CPUs share one generator, and which replica draws which number differs from run to
/// run. Make a DataParallel after fork(), not before.
///
/// Failure: an exception in a replica is rethrown as an Error (a ConfigError if it was one) that
/// begins with "replica 1 on cuda:1: ", after the other replicas have finished; the wrapper stays
/// usable. On GPUs autograd computes the backward of all replicas in one call, so its errors name
/// all devices.
template <class Module>
class DataParallel {
  using Contained = std::remove_reference_t<decltype(*std::declval<Module&>())>;

 public:
  /// Makes one replica on each of `devices`, which are all CPUs or all GPUs of one type. Only a CPU
  /// may occur several times, or, with DataParallelOptions::share_gpus, a GPU. Throws ConfigError
  /// for a device that does not exist, for weights that do not fit, and for a module that is null,
  /// is not on the first device, or cannot be cloned when there are several devices. Draws no
  /// random numbers.
  DataParallel(Module module, std::vector<torch::Device> devices,
               const DataParallelOptions& options = {})
      : module_(std::move(module)),
        core_(detail::module_in(module_, kName), std::move(devices), options) {}

  /// Like the constructor above, with device names: {"cuda:0", "cuda:1"}.
  DataParallel(Module module, std::initializer_list<const char*> devices,
               const DataParallelOptions& options = {})
      : DataParallel(std::move(module), detail::data_parallel::devices_named(devices), options) {}

  /// Returns what the module's forward() returns, gathered on the first device.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    using Output = std::decay_t<decltype(std::declval<Contained&>().forward(
        std::forward<Arguments>(arguments)...))>;
    static_assert(!std::is_void_v<Output>, "forward() must return what can be joined");
    detail::require_same_module(module_, wrapped_, kName);
    const auto output_of = [](Contained& replica, auto& part) -> Output {
      return std::apply([&](auto&... each) -> Output { return replica.forward(each...); }, part);
    };
    std::tuple<std::decay_t<Arguments>...> batch(std::forward<Arguments>(arguments)...);
    const auto tensors = detail::data_parallel::flattened(batch).tensors;
    if (!core_.has_replicas()) {
      detail::data_parallel::replace_tensors(batch, core_.on_first_device(tensors));
      return output_of(*module_, batch);
    }
    const detail::data_parallel::Step step = core_.begin(tensors);
    auto outputs = run<Output>(step, batch, output_of);
    std::vector<detail::data_parallel::Flattened> parts;
    for (const std::size_t r : step.active()) {
      parts.push_back(detail::data_parallel::flattened(*outputs[r]));
    }
    Output output = std::move(*outputs[step.active().front()]);
    detail::data_parallel::replace_tensors(output, step.gather(parts));
    return output;
  }

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  /// loss(criterion, inputs..., target) returns the mean of criterion(module->forward(inputs...),
  /// target) over the replicas, weighted by their numbers of samples. For a criterion that takes
  /// the mean over its samples, this is the mean over the whole batch. The criterion returns a
  /// tensor without dimensions. All replicas call it concurrently with tensors on their own
  /// devices: a criterion that holds tensors, such as class weights, must move them to the device
  /// of its arguments.
  template <class Criterion, class... Arguments>
    requires(sizeof...(Arguments) >= 2)
  torch::Tensor loss(Criterion&& criterion, Arguments&&... arguments) {
    constexpr auto kInputs = std::make_index_sequence<sizeof...(Arguments) - 1>();
    detail::require_same_module(module_, wrapped_, kName);
    std::tuple<std::decay_t<Arguments>...> batch(std::forward<Arguments>(arguments)...);
    const auto tensors = detail::data_parallel::flattened(batch).tensors;
    if (!core_.has_replicas()) {
      detail::data_parallel::replace_tensors(batch, core_.on_first_device(tensors));
      return loss_of(*module_, criterion, batch, kInputs);
    }
    const detail::data_parallel::Step step = core_.begin(tensors);
    const auto outputs = run<torch::Tensor>(step, batch, [&](Contained& replica, auto& part) {
      return loss_of(replica, criterion, part, kInputs);
    });
    std::vector<torch::Tensor> losses;
    for (const std::size_t r : step.active()) losses.push_back(*outputs[r]);
    return step.mean(losses);
  }

  /// The module itself. There is no operator->: it would call the module's own forward(), which
  /// uses one device.
  Module& module() { return module_; }
  const std::vector<torch::Device>& devices() const { return core_.devices(); }

 private:
  static constexpr const char* kName = "DataParallel";

  // Returns function(replica, its part of the batch) for each active replica.
  template <class Output, class Batch, class Function>
  std::vector<std::optional<Output>> run(const detail::data_parallel::Step& step,
                                         const Batch& batch, const Function& function) {
    std::vector<std::optional<Output>> outputs(core_.devices().size());
    step.run([&](std::size_t replica) {
      Batch part = batch;
      detail::data_parallel::replace_tensors(part, step.part(replica));
      outputs[replica].emplace(function(dynamic_cast<Contained&>(core_.replica(replica)), part));
    });
    return outputs;
  }

  template <class Criterion, class All, std::size_t... I>
  static torch::Tensor loss_of(Contained& module, Criterion& criterion, All& all,
                               std::index_sequence<I...>) {
    return criterion(module.forward(std::get<I>(all)...), std::get<sizeof...(I)>(all));
  }

  Module module_;
  Module wrapped_ = module_;  // keeps what core_ refers to alive, even if module() is reassigned
  detail::DataParallelCore core_;
};

}  // namespace lockstep
