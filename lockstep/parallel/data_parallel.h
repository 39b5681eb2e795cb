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
// Behaves like torch.nn.DataParallel: the batch is shared out along its first dimension, each
// replica computes its part on its device, and a backward adds up the gradients in the module's
// parameters. The optimizer, checkpoints and everything else use the module itself.
// DistributedDataParallel, a process for each device, is faster on several GPUs and goes beyond one
// host; DataParallel needs no launcher.
//
// There are two forms. forward() joins the outputs on the first device, where the program computes
// the loss. loss() computes the loss on every device and joins only the losses, which balances
// memory and work.
//
// {"cpu", "cpu"} makes replicas on threads that divide the processors. They share the module's
// parameters, and a step copies none.
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

/// `Module` is what users hold: a ModuleHolder such as Net or torch::nn::Sequential, or a
/// shared_ptr. The module must be on the first device, and it must be possible to clone it: it and
/// its submodules derive from torch::nn::Cloneable<T> and register everything in reset(), as
/// LibTorch's own do. With one device there are no replicas: forward() is the module's own, which
/// gets the arguments with their tensors moved to that device, and nothing is cloned.
///
/// Arguments: all tensors in them that have dimensions are scattered, and must agree in the first
/// one. Tensors without dimensions, numbers, strings and other values go to every replica as they
/// are. Arguments and outputs can be of any structure that for_each_tensor() knows: tuples,
/// vectors, maps, dictionaries, structs, inside each other. A batch with fewer samples than devices
/// leaves replicas idle. Outputs are joined tensor by tensor, along the first dimension; tensors
/// without dimensions become a vector with one element for each replica that had work. All other
/// values in an output are those of the first replica.
///
/// Replicas are kept between steps, and each forward makes them equal to the module: parameters,
/// even if they were given other memory, their requires_grad, train() and eval(). All GPUs but the
/// first get their parameters by one copy for each dtype. Whatever else a module holds is copied at
/// construction: after a change of options, such as a dropout rate, make a new DataParallel. A
/// replica's forward() must not modify parameters, and what it assigns to members is not seen by
/// the module.
///
/// Buffers: every replica begins a forward with the module's values. The first replica writes into
/// the module's own buffers, so that running statistics, of BatchNorm for instance, are those of
/// its part of the batch. The other replicas have copies, which each forward overwrites: a small
/// copy in each step, also between CPUs.
///
/// Gradients reach the module's parameters, and inputs that require them, as autograd delivers any:
/// they accumulate, hooks run, torch::autograd::grad works, as do several forwards before a
/// backward and retain_graph. They are added in the order of the replicas. A backward with
/// create_graph is a ConfigError. Outputs that are dropped free the replicas' graphs.
///
/// A tensor that requires a gradient and that the replicas get in another way, such as a weight of
/// the criterion or what a lambda captures, would lose its gradient. So would a parameter of the
/// module itself in a criterion: `mse(...) + 1e-4 * net->weight.square().sum()`; add such a term to
/// the result of loss(). forward() and loss() throw a ConfigError for a tensor that the first two
/// replicas with samples both use in this way. Other such uses are not noticed.
///
/// Threads: calls come from one thread at a time. forward() and the criterion run on several at
/// once, in the caller's gradient and inference mode, autocast and current streams. On CPUs each
/// has its part of the at::get_num_threads() that the constructor found, at least 1. Random numbers
/// come from the generator of the device. Replicas on CPUs share one generator, and which replica
/// draws which number differs from run to run. Make a DataParallel after fork(), not before.
///
/// Failure: what a replica throws is an Error (a ConfigError if it was one) that begins with
/// "replica 1 on cuda:1: ", thrown when the others have ended; the wrapper can be used further. On
/// GPUs autograd computes the backward of all replicas in one call, whose errors name all devices.
template <class Module>
class DataParallel {
  using Contained = std::remove_reference_t<decltype(*std::declval<Module&>())>;

 public:
  /// One replica on each of `devices`, GPUs of one type or CPUs, which may occur several times.
  /// ConfigError for a device that does not exist, for weights that do not fit, and for a module
  /// that is null, is not on the first device, or cannot be cloned for several. Draws no random
  /// numbers.
  DataParallel(Module module, std::vector<torch::Device> devices,
               const DataParallelOptions& options = {})
      : module_(std::move(module)), core_(module_in(module_, kName), std::move(devices), options) {}

  /// As above, with names of devices: {"cuda:0", "cuda:1"}.
  DataParallel(Module module, std::initializer_list<const char*> devices,
               const DataParallelOptions& options = {})
      : DataParallel(std::move(module), data_parallel::devices_named(devices), options) {}

  /// What the module's forward() returns, joined on the first device.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    using Output = std::decay_t<decltype(std::declval<Contained&>().forward(
        std::forward<Arguments>(arguments)...))>;
    static_assert(!std::is_void_v<Output>, "forward() must return what can be joined");
    require_same_module(module_, wrapped_, kName);
    const auto output_of = [](Contained& replica, auto& part) -> Output {
      return std::apply([&](auto&... each) -> Output { return replica.forward(each...); }, part);
    };
    std::tuple<std::decay_t<Arguments>...> batch(std::forward<Arguments>(arguments)...);
    const auto tensors = data_parallel::flattened(batch).tensors;
    if (!core_.has_replicas()) {
      data_parallel::replace_tensors(batch, core_.on_first_device(tensors));
      return output_of(*module_, batch);
    }
    const data_parallel::Step step = core_.begin(tensors);
    auto outputs = run<Output>(step, batch, output_of);
    std::vector<data_parallel::Flattened> parts;
    for (const std::size_t r : step.active()) {
      parts.push_back(data_parallel::flattened(*outputs[r]));
    }
    Output output = std::move(*outputs[step.active().front()]);
    data_parallel::replace_tensors(output, step.gather(parts));
    return output;
  }

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  /// loss(criterion, inputs..., target): the mean of criterion(module->forward(inputs...), target)
  /// over the replicas, weighted by their numbers of samples. For a criterion that takes the mean
  /// over its samples, this is the mean over the whole batch. The criterion returns a tensor
  /// without dimensions. It is called by all replicas at once with tensors on their devices: where
  /// it holds tensors itself, such as the weights of classes, it must bring them to the device of
  /// its arguments.
  template <class Criterion, class... Arguments>
    requires(sizeof...(Arguments) >= 2)
  torch::Tensor loss(Criterion&& criterion, Arguments&&... arguments) {
    constexpr auto kInputs = std::make_index_sequence<sizeof...(Arguments) - 1>();
    require_same_module(module_, wrapped_, kName);
    std::tuple<std::decay_t<Arguments>...> batch(std::forward<Arguments>(arguments)...);
    const auto tensors = data_parallel::flattened(batch).tensors;
    if (!core_.has_replicas()) {
      data_parallel::replace_tensors(batch, core_.on_first_device(tensors));
      return loss_of(*module_, criterion, batch, kInputs);
    }
    const data_parallel::Step step = core_.begin(tensors);
    const auto outputs = run<torch::Tensor>(step, batch, [&](Contained& replica, auto& part) {
      return loss_of(replica, criterion, part, kInputs);
    });
    std::vector<torch::Tensor> losses;
    for (const std::size_t r : step.active()) losses.push_back(*outputs[r]);
    return step.mean(losses);
  }

  /// The module itself. There is no operator->, because its forward() would be the module's own,
  /// which uses one device.
  Module& module() { return module_; }
  const std::vector<torch::Device>& devices() const { return core_.devices(); }

 private:
  static constexpr const char* kName = "DataParallel";

  // What function(replica, its part of the batch) returns, for each active replica.
  template <class Output, class Batch, class Function>
  std::vector<std::optional<Output>> run(const data_parallel::Step& step, const Batch& batch,
                                         const Function& function) {
    std::vector<std::optional<Output>> outputs(core_.devices().size());
    step.run([&](std::size_t replica) {
      Batch part = batch;
      data_parallel::replace_tensors(part, step.part(replica));
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
  Module wrapped_ = module_;  // keeps alive what core_ refers to, even if module() is assigned to
  DataParallelCore core_;
};

}  // namespace lockstep
