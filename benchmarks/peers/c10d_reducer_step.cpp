// What LibTorch's own reducer (c10d::Reducer, the engine of Python's DistributedDataParallel) adds
// to a training step, driven from C++ over Lockstep's backend and over Gloo, compared with ours:
//
//   c10d_reducer_step [options of `lockstep bench step`, e.g. --model resnet18 --json FILE]
//
// The nets, the alternating rounds and the reported figures are those of `lockstep bench step`
// (lockstep/bench/step/). Its options are checked like those of the command, so they come from cli.
// Rows have the strategies "ddp" (ours), "c10d on lockstep" and "c10d on gloo". One host only.
#include <stdlib.h>

#include <filesystem>
#include <iostream>
#include <map>

#include <CLI/CLI.hpp>

#ifndef USE_C10D_GLOO  // LibTorch's header is empty without it
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <lockstep/bench/step/rank.h>
#include <lockstep/cli/bench/step_settings.h>
#include <lockstep/core/error.h>
#include <lockstep/launch/launcher.h>
#include <python/src/backend.h>

namespace {

using namespace lockstep;
using C10dGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

constexpr const char* kOnLockstep = "c10d on lockstep";
constexpr const char* kOnGloo = "c10d on gloo";
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kBroadcastBytes = 250 * kMiB;  // as in Python's DDP

// The objects that torch.distributed.init_process_group creates.
C10dGroup make_group(const std::string& strategy, const c10::intrusive_ptr<c10d::Store>& store,
                     int rank, int size, std::chrono::milliseconds timeout) {
  const auto own = c10::make_intrusive<c10d::PrefixStore>(strategy, store);
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(own, rank, size);
  if (strategy == kOnLockstep) {
    group->setBackend(
        c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
        c10::make_intrusive<lockstep_c10d::LockstepBackend>(own, rank, size, rank, timeout));
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  } else {
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    options->threads = 2;
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                      c10::make_intrusive<c10d::ProcessGroupGloo>(own, rank, size, options));
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  }
  return group;
}

// Drives the reducer like torch/nn/parallel/distributed.py, with gradients as views of the buckets.
class C10dTrainer final : public bench::StepTrainer {
 public:
  C10dTrainer(const bench::StepWork& work, const bench::StepVariant& variant, C10dGroup group)
      : replica_(work),
        optimizer_(*replica_.net(), bench::optimizer_options(work.optimizer)),
        group_(std::move(group)),
        buffers_(replica_.net()->buffers()) {
    const auto parameters = replica_.net()->parameters();
    std::vector<torch::Tensor> state = buffers_;
    for (const auto& parameter : parameters) state.push_back(parameter.detach());
    c10d::broadcast_coalesced(group_, state, kBroadcastBytes);
    const auto cap = static_cast<std::size_t>(variant.bucket_cap_mb.value_or(1e4) * kMiB);
    const std::size_t first = variant.bucket_cap_mb ? std::min(kMiB, cap) : cap;
    auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, {first, cap}));
    std::reverse(buckets.begin(), buckets.end());
    reducer_ = std::make_unique<c10d::Reducer>(
        parameters, std::move(buckets), group_, std::vector<bool>(parameters.size()), cap,
        variant.find_unused_parameters, /*gradient_as_bucket_view=*/true,
        std::unordered_map<std::size_t, std::string>(), first,
        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
        std::vector<std::int64_t>());
  }

  void step() override {
    replica_.zero_grad(optimizer_);
    replica_.backward([this](const torch::Tensor& images) {
      if (reducer_->should_rebuild_buckets()) reducer_->rebuild_buckets();
      if (!buffers_.empty()) c10d::broadcast_coalesced(group_, buffers_, kBroadcastBytes);
      reducer_->prepare_for_forward();
      torch::Tensor output = replica_.net()->forward(images);
      reducer_->prepare_for_backward({});
      return output;
    });
    optimizer_.step();
  }

 private:
  bench::Replica replica_;
  Optimizer optimizer_;
  C10dGroup group_;
  std::vector<torch::Tensor> buffers_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

bench::BenchStepSettings parse(int argc, const char* const* argv) {
  cli::BenchStepArguments arguments;
  CLI::App app("c10d::Reducer beside Lockstep's");
  app.add_option("--model", arguments.model);
  app.add_option("--batch-per-rank", arguments.batch_per_rank);
  app.add_option("--bucket-cap-mb", arguments.bucket_cap_mb);
  app.add_flag("--set-to-none", arguments.set_to_none);
  app.add_option("--rounds", arguments.rounds);
  app.add_option("--steps", arguments.steps);
  app.add_option("--json", arguments.json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  bench::BenchStepSettings settings = resolve(arguments);
  const std::vector<bench::StepVariant> ours = settings.variants;
  for (const char* const strategy : {kOnLockstep, kOnGloo}) {
    for (bench::StepVariant variant : ours) {
      variant.strategy = strategy;
      variant.parameter_memory = "as-is";
      settings.variants.push_back(variant);
    }
  }
  return settings;
}

void run_rank(const bench::BenchStepSettings& settings, const std::string& store_file) {
  c10::intrusive_ptr<c10d::Store> store;
  std::map<std::string, C10dGroup> groups;  // one per strategy, shared by its variants
  bench::bench_step_rank(settings,
                         [&](const bench::StepWork& work, const bench::StepVariant& variant,
                             ProcessGroup group) -> std::unique_ptr<bench::StepTrainer> {
                           if (variant.strategy == "ddp")
                             return bench::make_trainer(work, variant, group);
                           if (!store)
                             store = c10::make_intrusive<c10d::FileStore>(store_file, group.size());
                           C10dGroup& its = groups[variant.strategy];
                           if (!its)
                             its = make_group(variant.strategy, store, group.rank(), group.size(),
                                              settings.timeout);
                           return std::make_unique<C10dTrainer>(work, variant, its);
                         });
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder = (std::filesystem::temp_directory_path() / "c10d_reducer_XXXXXX").string();
  try {
    const bench::BenchStepSettings settings = parse(argc, argv);
    if (settings.worker) throw ConfigError("c10d_reducer_step starts its ranks itself");
    if (mkdtemp(folder.data()) == nullptr) throw Error("cannot make the folder " + folder);
    const LaunchResult result = launch_ranks({.nproc_per_node = settings.world_size},
                                             [&] { run_rank(settings, folder + "/store"); });
    std::filesystem::remove_all(folder);
    if (!result.ok()) std::cerr << "error: " << result.message << std::endl;
    return result.exit_code;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return exit_code(error);
  }
}
