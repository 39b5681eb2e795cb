// Runs this library's device code on a simulated device: the results equal those on a CPU, and the
// host never waits for the device.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/grad_scaler.h>
#include <lockstep/parallel/base/existing_device.h>
#include <lockstep/parallel/comm_hooks/power_sgd.h>
#include <lockstep/parallel/data_parallel/devices.h>
#include <lockstep/parallel/ddp/step_recorder.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/sync_batch_norm.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <tests/parallel/batch_norm_kernels.h>
#include <tests/parallel/layers.h>
#include <tests/parallel/mean_of_ranks.h>
#include <tests/support/far_device/far_device.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  lockstep::testing_support::add_batch_norm_kernels(library);
}

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing_support::environment_of;
using testing_support::expect_gradients;
using testing_support::Gradients;
using testing_support::input_of;
using testing_support::Layers;
using testing_support::mean_of_ranks;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_threads;
using torch::Tensor;
namespace far_device = testing_support::far_device;

class OnADevice : public testing::Test {
 protected:
  OnADevice() { far_device::install(); }
};

ProcessGroup group_on(torch::Device device) {
  return init_process_group({.device = device, .environment = WorkerEnvironment{}});
}

// Each rank is a thread. A backward on a device runs on that device's autograd thread in LibTorch,
// so that each rank has its own device.
std::vector<std::string> run_ranks(bool on_devices,
                                   const std::function<void(ProcessGroup, torch::Device)>& body) {
  const int fd = comm::listen_on("127.0.0.1", 0);
  return run_threads(2, [&](int rank) {
    const torch::Device device = on_devices ? far_device::device(rank) : torch::Device(torch::kCPU);
    body(init_process_group({.backend = "shm",
                             .timeout = std::chrono::seconds(30),
                             .device = device,
                             .environment = environment_of(rank, 2, fd)}),
         device);
  });
}

template <class Function>
std::vector<std::string> waits_of(Function&& function) {
  const auto before = static_cast<std::ptrdiff_t>(far_device::waits().size());
  function();
  std::vector<std::string> waits = far_device::waits();
  waits.erase(waits.begin(), waits.begin() + before);
  return waits;
}

Tensor random_of(at::IntArrayRef shape, std::uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randn(shape, generator).mul_(3).add_(2);
}

void expect_close(const std::vector<Tensor>& ours, const std::vector<Tensor>& expected,
                  double tolerance, const std::string& name) {
  ASSERT_EQ(ours.size(), expected.size()) << name;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(torch::allclose(ours[i].cpu(), expected[i], tolerance, tolerance, true))
        << name << ": value " << i << '\n'
        << ours[i].cpu() << '\n'
        << expected[i];
  }
}

// --- Batch normalisation -------------------------------------------------------------------------

struct NormCase {
  std::string name;
  std::vector<std::int64_t> batches;  // one per rank
  bool is_affine = true;
  torch::ScalarType type_of_running = torch::kFloat32;
};

// For each rank, the results of a forward, a backward, and the backward of a gradient penalty.
std::vector<std::vector<Tensor>> normalised(const NormCase& given, bool on_devices) {
  std::vector<std::vector<Tensor>> results(2);
  const auto errors = run_ranks(on_devices, [&](ProcessGroup group, torch::Device device) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const std::vector<std::int64_t> shape = {given.batches[rank], 3, 4, 2};
    const Tensor input = random_of(shape, 7 + rank).to(device).requires_grad_();
    Tensor weight, bias;
    if (given.is_affine) {
      weight = torch::linspace(0.5, 2, 3).to(device).requires_grad_();
      bias = torch::linspace(-1, 1, 3).to(device).requires_grad_();
    }
    const Tensor mean = torch::zeros({3}).to(device, given.type_of_running);
    const Tensor variance = torch::ones({3}).to(device, given.type_of_running);
    const Tensor output = sync_batch_norm(input, weight, bias, mean, variance, 0.1, 1e-5, group);
    const Tensor gradient = random_of(shape, 70 + rank).to(device);
    const Tensor loss = (output * gradient).sum();
    std::vector<Tensor> sources = {input};
    if (given.is_affine) sources.insert(sources.end(), {weight, bias});
    std::vector<Tensor>& result = results[rank];
    result = {output.detach(), mean, variance};
    for (auto& each : torch::autograd::grad({loss}, sources, {}, /*retain_graph=*/true)) {
      result.push_back(each);
    }
    const auto first = torch::autograd::grad({loss}, {input}, {}, true, /*create_graph=*/true);
    result.push_back(torch::autograd::grad({first[0].square().sum()}, {input})[0]);
    for (Tensor& each : result) each = each.cpu();
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2)) << given.name;
  return results;
}

TEST_F(OnADevice, BatchNormalisationIsThatOfACpu) {
  for (const NormCase& each :
       {NormCase{"even", {3, 3}}, NormCase{"uneven", {5, 1}},
        NormCase{"the first rank has nothing", {0, 4}}, NormCase{"the last has nothing", {4, 0}},
        NormCase{"not affine", {2, 3}, false},
        NormCase{"running statistics in float64", {2, 3}, true, torch::kFloat64}}) {
    const auto expected = normalised(each, /*on_devices=*/false);
    const auto ours = normalised(each, /*on_devices=*/true);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      expect_close(ours[rank], expected[rank], 1e-4, str(each.name, ", rank ", rank));
    }
  }
}

TEST_F(OnADevice, BatchNormalisationWaitsForNothing) {
  const torch::Device device = far_device::device();
  ProcessGroup group = group_on(device);
  const Tensor input = random_of({4, 3, 2, 2}, 5).to(device).requires_grad_();
  const Tensor weight = torch::ones({3}).to(device).requires_grad_();
  const Tensor mean = torch::zeros({3}).to(device), variance = torch::ones({3}).to(device);
  EXPECT_THAT(waits_of([&] {
                sync_batch_norm(input, weight, weight, mean, variance, 0.1, 1e-5, group)
                    .square()
                    .sum()
                    .backward();
              }),
              IsEmpty());
}

TEST_F(OnADevice, BatchNormalisationNeedsSeveralValues) {
  const torch::Device device = far_device::device();
  const Tensor input = random_of({1, 3}, 5).to(device);
  EXPECT_THROW(sync_batch_norm(input, {}, {}, {}, {}, 0.1, 1e-5, group_on(device)), ConfigError);
}

// --- The reducer ---------------------------------------------------------------------------------

// The gradients after several backwards through the layers named in `order`. Undefined gradients
// are returned as NaN of shape [1].
std::vector<Tensor> gradients_of(torch::Device device, const std::string& order,
                                 const DdpOptions& options,
                                 std::vector<std::string>* waits = nullptr) {
  Layers net(3);
  net->to(device);
  DistributedDataParallel ddp(net, group_on(device), options);
  const Tensor input = input_of(0, 1).to(device);
  const auto backward = [&] { ddp.forward(input, order).sum().backward(); };
  for (int i = 0; i < 2; ++i) backward();
  net->zero_grad();
  const auto names = waits_of(backward);
  if (waits != nullptr) *waits = names;
  std::vector<Tensor> gradients;
  for (const auto& parameter : net->parameters()) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad().cpu()
                                                   : torch::full({1}, std::nan("")));
  }
  return gradients;
}

TEST_F(OnADevice, ASearchForUnusedParametersWaitsOnlyWhereThereAreSome) {
  const DdpOptions options{.find_unused_parameters = true};
  std::vector<std::string> waits;
  for (const std::string order : {"abc", "ca", "b", "a", "c", "bc"}) {
    const auto ours = gradients_of(far_device::device(), order, options, &waits);
    expect_close(ours, gradients_of(torch::kCPU, order, options), 1e-5, order);
    if (order == "abc") {
      EXPECT_THAT(waits, IsEmpty());
    } else {
      EXPECT_THAT(waits, ElementsAre("copy to the host")) << order;
    }
  }
}

// Neither rank uses the last layer. Those that only one rank uses get half of its gradient.
TEST_F(OnADevice, ParametersUnusedOnOneRankGetTheGradientOfTheOther) {
  const std::vector<std::vector<std::string>> steps = {
      {"abc", "abc"}, {"a", "c"}, {"ca", "b"}, {"b", "ab"}};
  const auto errors = run_ranks(/*on_devices=*/true, [&](ProcessGroup group, torch::Device device) {
    Layers net(4);
    net->to(device);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    for (const std::vector<std::string>& orders : steps) {
      const Gradients expected = mean_of_ranks(2, [&](int rank) {
        Layers alone(4);
        alone->forward(input_of(rank), orders[static_cast<std::size_t>(rank)]).sum().backward();
        return alone;
      });
      net->zero_grad();
      const std::string& order = orders[static_cast<std::size_t>(group.rank())];
      ddp.forward(input_of(group.rank()).to(device), order).sum().backward();
      expect_gradients(*net, expected, 1e-4);
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_F(OnADevice, StatisticsAreTheDevicesTimes) {
  const torch::Device device = far_device::device();
  Layers net(3);
  net->to(device);
  DistributedDataParallel ddp(net, group_on(device),
                              {.bucket_cap_mb = 1e-5, .first_bucket_cap_mb = 1e-5});
  const Tensor input = input_of(0, 1).to(device);
  for (int i = 0; i < 5; ++i) ddp.forward(input, "abc").sum().backward();
  const DdpStatistics statistics = ddp.statistics();
  EXPECT_EQ(statistics.steps, 5);
  EXPECT_GE(statistics.backward_ms, 1) << "each piece of work takes a millisecond";
  for (const BucketStatistics& bucket : statistics.buckets) {
    EXPECT_LE(bucket.ready_ms, bucket.start_ms);
    EXPECT_LE(bucket.start_ms, bucket.end_ms);
  }
}

// --- Times ---------------------------------------------------------------------------------------

class RecordedSteps {
 public:
  RecordedSteps() { recorder.measure_on(far_device::device()); }
  void step() {
    recorder.begin(1);
    work(2);
    recorder.ready(0);
    recorder.start(0);
    work(3);
    recorder.computed();
    work(4);
    recorder.reduced();
  }
  void work(int pieces) {
    for (int i = 0; i < pieces; ++i) ones_.add_(1);
  }
  detail::StepRecorder recorder;

 private:
  Tensor ones_ = torch::ones({1}, far_device::device());
};

TEST_F(OnADevice, ARecordersStepsFollowEachOther) {
  RecordedSteps steps;
  std::vector<std::string> waits = waits_of([&] {
    for (int i = 0; i < 300; ++i) steps.step();
  });
  EXPECT_THAT(waits, testing::Each("wait for an event")) << "of steps that leave the ring";
  EXPECT_LE(waits.size(), 300U - detail::StepRecorder::kSteps);
  const Clock::time_point before = Clock::now();
  steps.recorder.settle();
  const std::vector<detail::StepTimes> last = steps.recorder.last();
  ASSERT_EQ(last.size(), detail::StepRecorder::kSteps - 1);
  for (std::size_t i = 0; i < last.size(); ++i) {
    const detail::StepTimes& step = last[i];
    if (i > 0) {
      EXPECT_EQ(step.begin, last[i - 1].reduced);
    }
    EXPECT_LT(step.backward, step.buckets[0].ready);
    EXPECT_LE(step.buckets[0].ready, step.buckets[0].start);
    EXPECT_LT(step.buckets[0].start, step.computed);
    EXPECT_LT(step.computed, step.reduced);
    EXPECT_EQ(step.buckets[0].end, step.reduced) << "nobody saw it end before";
  }
  EXPECT_LE(last.back().reduced, Clock::now()) << "by the host's clock";
  EXPECT_GE(last.back().reduced + std::chrono::milliseconds(100), before);
  const double exposed = steps.recorder.exposed_seconds() / 300;
  EXPECT_NEAR(exposed, std::chrono::duration<double>(last[0].reduced - last[0].computed).count(),
              1e-6);
}

TEST_F(OnADevice, ARecorderOfACpuWaitsForNothing) {
  detail::StepRecorder recorder;
  recorder.measure_on(torch::kCPU);
  EXPECT_THAT(waits_of([&] {
                recorder.begin(0);
                recorder.computed();
                recorder.reduced();
                recorder.settle();
              }),
              IsEmpty());
  EXPECT_EQ(recorder.last().size(), 1U);
}

// --- PowerSGD ------------------------------------------------------------------------------------

// Gradients compressed by PowerSGD in `steps` steps. The gradient of step `broken` is not finite.
std::vector<Tensor> compressed(torch::Device device, int steps, int broken,
                               std::vector<std::string>* waits = nullptr) {
  torch::nn::Linear layer(torch::nn::LinearOptions(12, 10));
  layer->to(device);
  ProcessGroup group = group_on(device);
  DistributedDataParallel ddp(layer, group);
  PowerSgd power_sgd(group, {.start_power_sgd_iter = 1, .min_compression_rate = 0.5});
  ddp.register_comm_hook(power_sgd.hook());
  std::vector<Tensor> gradients;
  for (int i = 0; i < steps; ++i) {
    Tensor gradient = random_of({4, 10}, static_cast<std::uint64_t>(i));
    if (i == broken) gradient[1][2] = std::numeric_limits<double>::infinity();
    gradient = gradient.to(device);
    const Tensor input = random_of({4, 12}, 50 + static_cast<std::uint64_t>(i)).to(device);
    layer->zero_grad();
    const auto names = waits_of([&] { (ddp.forward(input) * gradient).sum().backward(); });
    if (waits != nullptr && i > 2) waits->insert(waits->end(), names.begin(), names.end());
    gradients.push_back(layer->weight.grad().detach().cpu().clone());
  }
  return gradients;
}

TEST_F(OnADevice, PowerSgdIsThatOfACpuAndWaitsForNothing) {
  for (const int broken : {-1, 4}) {
    std::vector<std::string> waits;
    const auto ours = compressed(far_device::device(), 7, broken, &waits);
    const auto expected = compressed(torch::kCPU, 7, broken);
    EXPECT_THAT(waits, IsEmpty());
    expect_close(ours, expected, 1e-3, str("broken step ", broken));
    EXPECT_EQ(ours[4].isnan().all().item<bool>(), broken == 4);
    EXPECT_TRUE(ours[5].isfinite().all().item<bool>());
  }
}

// --- ZeRO ----------------------------------------------------------------------------------------

double clipped_norm(torch::Device device) {
  Layers net(3);
  net->to(device);
  DistributedDataParallel ddp(net, group_on(device), {.parameter_memory = ParameterMemory::kFlat});
  ZeroRedundancyOptimizer optimizer(ddp.core(), *net, SgdOptions{.lr = 0.1});
  ddp.forward(input_of(0, 1).to(device), "abc").sum().backward();
  const Tensor norm = optimizer.clip_grad_norm(0.5);
  EXPECT_EQ(norm.device().type(), device.type());
  return norm.item<double>();
}

TEST_F(OnADevice, ZeroClipsByTheNormOfACpu) {
  EXPECT_NEAR(clipped_norm(far_device::device()), clipped_norm(torch::kCPU), 1e-5);
}

// Parameters of a model whose parts are on several devices. Each list of a kernel is on one device:
// a device's kernels cannot read the memory of another.
TEST_F(OnADevice, ClippingGroupsGradientsByDevice) {
  struct Kind {
    const char* what;
    double norm_type;
  };
  for (const Kind& kind : {Kind{"2", 2}, Kind{"inf", INFINITY}, Kind{"1", 1}, Kind{"values", 0}}) {
    const auto clipped = [&](const std::vector<torch::Device>& devices) {
      std::vector<Tensor> parameters, gradients;
      for (std::size_t i = 0; i < devices.size(); ++i) {
        const auto type = i % 2 == 0 ? torch::kFloat32 : torch::kFloat64;
        const auto options = torch::TensorOptions(devices[i]).dtype(type);
        parameters.push_back(torch::zeros({3}, options).requires_grad_());
        parameters[i].mutable_grad() =
            torch::arange(1 + 2.0 * static_cast<double>(i), 4 + 2.0 * static_cast<double>(i), type)
                .to(devices[i]);
      }
      Tensor norm = torch::zeros({});
      if (kind.norm_type == 0) {
        clip_grad_value_(parameters, 4);
      } else {
        norm = clip_grad_norm_(parameters, 1.5, kind.norm_type);
        EXPECT_EQ(norm.device(), devices[0]) << kind.what;
      }
      for (const Tensor& parameter : parameters) {
        EXPECT_EQ(parameter.grad().device(), parameter.device()) << kind.what;
        gradients.push_back(parameter.grad().cpu().to(torch::kFloat64));
      }
      gradients.push_back(norm.cpu().to(torch::kFloat64).view({1}));
      return torch::cat(gradients);
    };
    const torch::Device cpu = torch::kCPU, far = far_device::device(0),
                        farther = far_device::device(1);
    const Tensor expected = clipped({cpu, cpu, cpu, cpu, cpu});
    EXPECT_TRUE(clipped({cpu, far, farther, cpu, far}).allclose(expected, 1e-6)) << kind.what;
    EXPECT_TRUE(clipped({far, cpu, cpu, farther, farther}).allclose(expected, 1e-6)) << kind.what;
  }
}

// The scale is on one device, but the gradients of a model in parts are on several. Several
// overflows count as one, because the optimizers' kernels test for exactly 1.
TEST_F(OnADevice, AGradScalerUnscalesGradientsWhereTheyAre) {
  const torch::Device cpu = torch::kCPU, far = far_device::device(0),
                      farther = far_device::device(1);
  const std::vector<torch::Device> places = {far, cpu, farther, far};
  const std::vector<std::set<std::size_t>> overflows = {{}, {0}, {1}, {2}, {0, 1, 2, 3}};
  for (const torch::Device& home : {cpu, far}) {
    for (const std::set<std::size_t>& overflow : overflows) {
      std::vector<Tensor> gradients;
      for (std::size_t i = 0; i < places.size(); ++i) {
        Tensor values = torch::tensor({8.0F, -2.0F});
        if (overflow.contains(i)) values[1].fill_(std::numeric_limits<float>::infinity());
        gradients.push_back(values.to(places[i]));
      }
      GradScaler scaler({.init_scale = 4}, home);
      float found = -1;
      scaler.reduce_found_inf_with([&](Tensor& found_inf) {
        EXPECT_EQ(found_inf.device(), home);
        found = found_inf.item<float>();
      });
      bool steps = false;
      EXPECT_EQ(scaler.step(gradients, [&] { steps = true; }), overflow.empty());
      scaler.update();
      EXPECT_EQ(steps, overflow.empty());
      EXPECT_EQ(found, overflow.empty() ? 0 : 1);
      EXPECT_EQ(scaler.get_scale(), overflow.empty() ? 4 : 2);
      for (std::size_t i = 0; i < places.size(); ++i) {
        EXPECT_EQ(gradients[i].device(), places[i]);
        EXPECT_EQ(gradients[i][0].item<float>(), 2) << i;
        if (!overflow.contains(i)) {
          EXPECT_EQ(gradients[i][1].item<float>(), -0.5) << i;
        }
      }
    }
    const GradScaler scaler({.init_scale = 4}, home);
    for (const torch::Device& place : places) {
      const Tensor scaled = scaler.scale(torch::tensor(3.0F).to(place));
      EXPECT_EQ(scaled.device(), place);
      EXPECT_EQ(scaled.item<float>(), 12);
    }
  }
}

TEST_F(OnADevice, DataParallelRepeatsADeviceOnlyIfAsked) {
  const torch::Device first = far_device::device(0), second = far_device::device(1);
  using detail::data_parallel::checked_devices;
  EXPECT_THAT(checked_devices({second, first}), ElementsAre(second, first));
  EXPECT_EQ(message_of<ConfigError>([&] { checked_devices({first, second, first}); }),
            lockstep::str("DataParallel: ", first,
                          " is listed twice; use a different GPU for each replica, or set "
                          "DataParallelOptions::share_gpus"));
  EXPECT_THAT(checked_devices({first, second, first}, /*share_gpus=*/true),
              ElementsAre(first, second, first));
}

// A process sees two far devices. A device without an index is the current one.
TEST_F(OnADevice, ADeviceBeyondTheLastIsRefused) {
  const torch::Device last = far_device::device(far_device::kDevices - 1);
  EXPECT_EQ(parallel::existing_device(last, "here: "), last);
  EXPECT_EQ(parallel::existing_device(torch::Device(last.type()), "here: ").index(),
            far_device::current_device());
  const std::string refusal = message_of<ConfigError>(
      [] { parallel::existing_device(far_device::device(far_device::kDevices), "here: "); });
  EXPECT_THAT(refusal, testing::StartsWith("here: "));
  EXPECT_THAT(refusal, testing::HasSubstr(":2 does not exist: this process sees 2 "));
  EXPECT_THAT(refusal, testing::HasSubstr(" devices, the last of which is "));
  EXPECT_THAT(refusal, testing::EndsWith(":1"));
  EXPECT_FALSE(parallel::existing_device(torch::Device(torch::kCPU, 0), "").has_index());
  EXPECT_EQ(message_of<ConfigError>(
                [] { parallel::existing_device(torch::Device(torch::kVE, 1), "here: "); }),
            "here: ve:1 cannot be used: this LibTorch is built without ve; use a build with it, or "
            "\"cpu\" devices");
}

}  // namespace
}  // namespace lockstep
