#include <lockstep/simulate/simulation.h>

#include <algorithm>
#include <cmath>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/simulate/extrapolation.h>
#include <lockstep/simulate/simulated_step.h>

namespace lockstep::simulate {
namespace {

// The quantile of the standard normal distribution for a probability from 1/2 on. Bisection of erfc
// needs no tables.
double normal_quantile(double probability) {
  double low = 0, high = 10;
  constexpr int kSteps = 60;
  for (int i = 0; i < kSteps; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

bool is_measured(const Network& network, int ranks, const SimulationOptions& options) {
  return options.algorithm == "auto" && network.measured && network.measured->ranks == ranks;
}

double slower(double seconds, const MessageCost& other, double bytes) {
  return other.empty() ? seconds : std::max(seconds, other.seconds(bytes));
}

BucketTransfer measured_transfer(const MeasuredCollective& collective, double bytes) {
  const double alone = collective.alone.seconds(bytes);
  const double taken = collective.taken.seconds(bytes);
  const double beside = std::max(slower(alone, collective.beside, bytes), taken);
  return {.alone_seconds = alone, .beside_seconds = beside, .taken_seconds = taken};
}

// The transfer of half an all-reduce: a reduce-scatter or an all-gather.
BucketTransfer half_of(BucketTransfer transfer) {
  transfer.alone_seconds /= 2;
  transfer.beside_seconds /= 2;
  transfer.taken_seconds /= 2;
  return transfer;
}

// The costs under one set of options.
class Costs {
 public:
  Costs(const Network& network, int ranks, const SimulationOptions& options)
      : network_(at_speed(network, options.speed)),
        places_{.ranks = ranks, .ranks_per_host = options.ranks_per_host},
        options_(options),
        measured_(is_measured(network, ranks, options)) {}

  AllReduceCost all_reduce(double bytes) const {
    return all_reduce_cost(options_.algorithm, bytes, places_, network_);
  }
  BucketTransfer all_reduce_transfer(double bytes) const {
    if (measured_) return measured_transfer(network_.measured->all_reduce, bytes);
    const double seconds = all_reduce(bytes).seconds;
    return {.alone_seconds = seconds, .beside_seconds = seconds};
  }
  BucketTransfer reduce_scatter(double bytes) const {
    if (measured_ && network_.measured->reduce_scatter) {
      return measured_transfer(*network_.measured->reduce_scatter, bytes);
    }
    return half_of(all_reduce_transfer(bytes));
  }
  double all_gather_seconds(double bytes) const {
    if (measured_ && network_.measured->all_gather) {
      return network_.measured->all_gather->alone.seconds(bytes);
    }
    return half_of(all_reduce_transfer(bytes)).alone_seconds;
  }
  // Hosts whose ranks share one copy of the parameters still gather those that other hosts update.
  double all_gather_seconds_of_hosts(double bytes) const {
    const int hosts = network_.wire == Wire::kNetwork ? places_.hosts() : 1;
    const RankPlaces one_a_host{.ranks = hosts, .ranks_per_host = 1};
    return all_reduce_cost(options_.algorithm, bytes, one_a_host, network_).seconds / 2;
  }

 private:
  const Network network_;
  const RankPlaces places_;
  const SimulationOptions& options_;
  const bool measured_;
};

// Several small messages wait longer than they travel if a thread must wake up for each.
bool has_small_buckets(const StepProfile& profile, int buckets, const SimulationOptions& options) {
  constexpr double kSmallBytes = 64 * 1024;
  return buckets > 1 && profile.bytes() * options.bytes_factor / buckets < kSmallBytes;
}

double update_seconds(const StepProfile& profile, int ranks, const SimulationOptions& options) {
  return options.strategy == "zero1" ? profile.optimizer_seconds / ranks
                                     : profile.optimizer_seconds;
}

double step_of_one_rank(const StepProfile& profile, const SimulationOptions& options) {
  return profile.compute_seconds() - (options.waits_for_data ? 0 : profile.data_seconds);
}

// The gradients, and with zero1 the parameters, that travel in a step. Adds their time to `step`.
void communicate(const StepProfile& profile, const Costs& costs, const SimulationOptions& options,
                 PredictedStep& step) {
  const bool sharded = options.strategy == "zero1";
  std::vector<BucketTransfer> transfers;
  double largest = 0, behind = 0;
  for (const ProfileBucket& bucket : buckets_of(profile, options)) {
    const double bytes = bucket.bytes * options.bytes_factor;
    ++step.buckets;
    if (bucket.bytes > largest) step.algorithm = costs.all_reduce(bytes).algorithm;
    largest = std::max(largest, bucket.bytes);
    if (sharded && options.shares_parameters) {
      behind += costs.reduce_scatter(bytes).alone_seconds +
                costs.all_gather_seconds_of_hosts(bucket.bytes);
      continue;
    }
    BucketTransfer transfer =
        sharded ? costs.reduce_scatter(bytes) : costs.all_reduce_transfer(bytes);
    transfer.ready_seconds = bucket.ready_seconds;
    transfers.push_back(transfer);
    if (sharded) behind += costs.all_gather_seconds(bucket.bytes);
  }
  const SimulatedBackward backward = simulate_backward(profile.backward_seconds, transfers);
  step.exposed_seconds = backward.exposed_seconds + behind;
  step.taken_seconds = backward.backward_seconds - profile.backward_seconds;
}

SimulationOptions with(const SimulationOptions& options, const auto& change) {
  SimulationOptions changed = options;
  change(changed);
  return changed;
}

}  // namespace

const std::vector<std::string>& simulated_strategy_names() {
  static const std::vector<std::string> names = {"ddp", "zero1"};
  return names;
}

void validate(const SimulationOptions& options, const std::string& where) {
  const OptionCheck check(where);
  check.one_of("strategy", options.strategy, simulated_strategy_names());
  check.one_of("algorithm", options.algorithm, all_reduce_names());
  check.in_range("ranks_per_host", options.ranks_per_host, 1, kMostRanksPerHost);
  check.positive("bytes_factor", options.bytes_factor);
  check.positive("speed", options.speed);
  if (!options.buckets) return;
  check.positive("buckets.cap_bytes", options.buckets->cap_bytes);
  check.positive("buckets.first_cap_bytes", options.buckets->first_cap_bytes);
}

std::vector<ProfileBucket> buckets_of(const StepProfile& profile,
                                      const SimulationOptions& options) {
  return options.buckets ? rebucket(profile.buckets, *options.buckets) : profile.buckets;
}

StepProfile without_transfers(const StepProfile& profile, const Network& run_network) {
  if (!run_network.measured) return profile;
  StepProfile free = profile;
  double taken = 0;
  double ready = 0;
  for (ProfileBucket& bucket : free.buckets) {
    bucket.ready_seconds = ready = std::max(ready, bucket.ready_seconds - taken);
    if (&bucket == &free.buckets.back()) break;
    taken += run_network.measured->all_reduce.taken.seconds(bucket.bytes);
  }
  free.backward_seconds = std::max(ready, profile.backward_seconds - taken);
  return free;
}

double expected_largest_deviation(int ranks) {
  if (ranks < 2) return 0;
  return normal_quantile((ranks - 0.375) / (ranks + 0.25));
}

PredictedStep predict_step(const StepProfile& profile, const Network& network, int ranks,
                           const SimulationOptions& options) {
  PredictedStep step{.ranks = ranks, .algorithm = "none"};
  // Steps of pure computing vary like steps over shared memory, which are little else.
  double share = error_share(Wire::kSharedMemory, false);
  double late_seconds = 0;
  if (options.communicates && ranks > 1) {
    communicate(profile, Costs(network, ranks, options), options, step);
    share = error_share(network.wire, has_small_buckets(profile, step.buckets, options));
    if (network.shares_processor) late_seconds = kSchedulerTickSeconds;
  }
  if (options.has_stragglers && profile.ranks > 1) {
    step.straggler_seconds = profile.straggler_seconds * expected_largest_deviation(ranks) /
                             expected_largest_deviation(profile.ranks);
  }
  const double alone = step_of_one_rank(profile, options);
  step.step_seconds = alone - profile.optimizer_seconds + update_seconds(profile, ranks, options) +
                      step.exposed_seconds + step.taken_seconds + step.straggler_seconds;
  step.interval = interval_around(step.step_seconds, share, late_seconds);
  step.efficiency = alone / step.step_seconds;
  step.extrapolations = extrapolations(profile, network, {ranks}, options);
  return step;
}

std::vector<WhatIf> what_if(const StepProfile& profile, const Network& network, int ranks,
                            const SimulationOptions& options) {
  std::vector<WhatIf> answers;
  const auto add = [&](const std::string& name, int with_ranks, const auto& change) {
    answers.push_back({name, predict_step(profile, network, with_ranks, with(options, change))});
  };
  const auto nothing = [](SimulationOptions&) {};
  add("as it is", ranks, nothing);
  add("without communication", ranks, [](SimulationOptions& to) { to.communicates = false; });
  add("ranks equally fast", ranks, [](SimulationOptions& to) { to.has_stragglers = false; });
  add("without waiting for data", ranks, [](SimulationOptions& to) { to.waits_for_data = false; });
  for (const double mebibytes : {1.0, 5.0, 25.0, 100.0}) {
    add(str("buckets of ", mebibytes, " MiB"), ranks,
        [=](SimulationOptions& to) { to.buckets = bucket_sizes(mebibytes); });
  }
  add("one bucket behind backward", ranks, [&](SimulationOptions& to) {
    const double all = 2 * profile.bytes();
    to.buckets = BucketSizes{.cap_bytes = all, .first_cap_bytes = all};
  });
  add("bf16 gradients", ranks, [](SimulationOptions& to) { to.bytes_factor *= 0.5; });
  add("a wire of half the speed", ranks, [](SimulationOptions& to) { to.speed *= 0.5; });
  add("a wire of twice the speed", ranks, [](SimulationOptions& to) { to.speed *= 2; });
  if (ranks > 1) add("half as many ranks", ranks / 2, nothing);
  add("twice as many ranks", 2 * ranks, nothing);
  return answers;
}

}  // namespace lockstep::simulate
