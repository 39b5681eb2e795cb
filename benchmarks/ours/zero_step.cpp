// Measures how long several ranks of one host need from their gradients to the next parameters:
//
//   zero_step [ranks, default 2] [rounds, default 21]
//
// Compares DistributedDataParallel's all-reduce and a full optimizer on each rank, ZeRO-1 with
// reduce-scatter and all-gather, and ZeRO-1 on shared parameters (docs/adr/011). Prints medians of
// the slowest rank over alternating rounds. The lower bound is the number of bytes that must move,
// divided by the speed at which all ranks together read and write memory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>
#include <torch/utils.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/core/clock.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/launch/rank_setup.h>
#include <lockstep/models/resnet.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/ddp/bucket_assignment.h>
#include <lockstep/parallel/ddp/bucket_memory.h>
#include <lockstep/parallel/zero/sharded_step.h>

namespace {

using namespace lockstep;

struct Model {
  std::string name;
  std::vector<std::vector<std::int64_t>> shapes;
  double parameters() const {
    double sum = 0;
    for (const auto& shape : shapes) sum += static_cast<double>(c10::multiply_integers(shape));
    return sum;
  }
};

Model resnet18_shapes() {
  Model model{"ResNet-18", {}};
  for (const auto& parameter : resnet18()->parameters())
    model.shapes.push_back(parameter.sizes().vec());
  return model;
}

Model large() {
  return {"24 of 2048x2048", std::vector<std::vector<std::int64_t>>(24, {2048, 2048})};
}

// One way from gradients to parameters.
class Way {
 public:
  Way(const Model& model, ProcessGroup group, ParameterMemory memory,
      const OptimizerOptions& options)
      : group_(group), memory_(memory) {
    const torch::NoGradGuard no_grad;
    Tensors tensors;
    NamedTensors named;
    for (const auto& shape : model.shapes) {
      parameters_.push_back({std::to_string(parameters_.size()), torch::full(shape, 0.5)});
      tensors.push_back(parameters_.back().tensor);
      named.emplace_back(parameters_.back().name, tensors.back());
    }
    for (const auto& members : lockstep::detail::assign_buckets(
             tensors, lockstep::detail::reverse_order(tensors.size()), {})) {
      std::vector<lockstep::detail::NamedParameter> of_bucket;
      for (const std::size_t i : members) of_bucket.push_back(parameters_[i]);
      buckets_.push_back(lockstep::detail::make_bucket(of_bucket, group_, memory));
      GradBucket& bucket = buckets_.back();
      if (memory != ParameterMemory::kAsIs)
        lockstep::detail::move_parameters(bucket, group_, memory);
      bucket.index = buckets_.size() - 1;
      for (std::size_t i = 0; i < members.size(); ++i) {
        bucket.parameters[i].mutable_grad() = bucket.gradients[i];
      }
    }
    buckets_.back().is_last = true;
    if (memory == ParameterMemory::kAsIs) {
      plain_ = std::make_unique<Optimizer>(named, options);
    } else {
      sharded_ = std::make_unique<lockstep::detail::ShardedStep>(
          std::vector<ParameterGroup>{{.parameters = named, .options = options}}, group_, memory);
    }
  }

  const char* name() const {
    if (plain_) return "all-reduce, each its own optimizer";
    return memory_ == ParameterMemory::kFlat ? "ZeRO-1, reduce-scatter, all-gather"
                                             : "ZeRO-1, shared parameters";
  }

  /// Fills the gradients as backward does.
  void make_gradients() {
    for (const GradBucket& bucket : buckets_) bucket.buffer.fill_(1e-3 * (group_.rank() + 1));
    if (sharded_) sharded_->forget_gradients();
  }

  void step() {
    std::vector<WorkPtr> works;
    for (const GradBucket& bucket : buckets_) {
      works.push_back(plain_ ? group_.async_all_reduce(bucket.buffer, ReduceOp::kAverage)
                             : sharded_->reduce(bucket, /*layout_is_final=*/true));
    }
    for (const auto& work : works) work->wait();
    plain_ ? plain_->step() : sharded_->step(buckets_);
  }

  /// Bytes that all ranks together read or write per float32 parameter.
  double bytes_per_parameter(int states) const {
    const double ranks = group_.size();
    const double update = 1 + 2 + 2 * states;  // the gradient; parameter and states in place
    if (plain_) return 4 * (2 * ranks + ranks * update);
    if (memory_ == ParameterMemory::kFlat) return 4 * (ranks + 1 + update + 2 * (ranks - 1));
    return 4 * (ranks - 1 + update);
  }

 private:
  ProcessGroup group_;
  ParameterMemory memory_;
  std::vector<lockstep::detail::NamedParameter> parameters_;
  std::vector<GradBucket> buckets_;
  std::unique_ptr<Optimizer> plain_;
  std::unique_ptr<lockstep::detail::ShardedStep> sharded_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The time of the slowest rank.
template <class Function>
double milliseconds(ProcessGroup& group, Function&& function) {
  group.barrier();
  const auto start = Clock::now();
  function();
  auto taken = torch::full({1}, seconds_since(start) * 1e3, torch::kFloat64);
  group.all_reduce(taken, ReduceOp::kMax);
  return taken.item<double>();
}

// The speed in GB/s at which all ranks together update uncached memory in place.
double memory_speed(ProcessGroup& group) {
  const auto numbers = torch::ones({std::int64_t{32} << 20});
  std::vector<double> times;
  for (int round = 0; round < 9; ++round) {
    times.push_back(milliseconds(group, [&] { numbers.mul_(1.0F); }));
  }
  return 2.0 * static_cast<double>(numbers.nbytes()) * group.size() / median(times) / 1e6;
}

void measure(const Model& model, const char* rule, const OptimizerOptions& options, int states,
             ProcessGroup& group, int rounds) {
  std::vector<std::unique_ptr<Way>> ways;
  for (const auto memory :
       {ParameterMemory::kAsIs, ParameterMemory::kFlat, ParameterMemory::kShared}) {
    ways.push_back(std::make_unique<Way>(model, group, memory, options));
  }
  std::vector<std::vector<double>> times(ways.size());
  for (int round = -3; round < rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const std::size_t way = (i + static_cast<std::size_t>(round + 3)) % ways.size();
      ways[way]->make_gradients();
      const double time = milliseconds(group, [&] { ways[way]->step(); });
      if (round >= 0) times[way].push_back(time);  // the first rounds are a warm-up
    }
  }
  const double speed = memory_speed(group);
  if (group.rank() != 0) return;
  std::printf("\n%s, %.1f M parameters, %s, %d ranks; memory %.1f GB/s\n", model.name.c_str(),
              model.parameters() / 1e6, rule, group.size(), speed);
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const double bytes = ways[i]->bytes_per_parameter(states);
    std::printf("  %-36s %8.2f ms  %4.0f bytes a parameter, floor %8.2f ms\n", ways[i]->name(),
                median(times[i]), bytes, bytes * model.parameters() / speed / 1e6);
  }
  std::fflush(stdout);
}

void run_rank(int rounds) {
  launch::prepare_rank(worker_environment().value());
  at::set_num_threads(1);
  auto group = init_process_group();
  for (const Model& model : {resnet18_shapes(), large()}) {
    const int of_model = model.parameters() > 5e7 ? std::max(3, rounds / 3) : rounds;
    measure(model, "SGD with momentum", SgdOptions{.lr = 0.01, .momentum = 0.9}, 1, group,
            of_model);
    measure(model, "AdamW", AdamWOptions{}, 2, group, of_model);
  }
  group.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2;
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 21;
  const auto result = launch_ranks({.nproc_per_node = ranks}, [&] { run_rank(rounds); });
  if (!result.ok()) std::fprintf(stderr, "error: %s\n", result.message.c_str());
  return result.exit_code;
}
