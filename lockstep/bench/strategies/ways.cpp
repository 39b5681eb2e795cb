#include <lockstep/bench/strategies/ways.h>

#include <algorithm>

#include <lockstep/parallel/pipeline/schedule/replay.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>

namespace lockstep::bench {
namespace {

constexpr int kParts = 2;  // replicas, ranks or workers that share the threads
constexpr int kHybridRanks = 4;

StrategyWay on_threads(const std::string& name, const std::string& strategy, int threads) {
  StrategyWay way;
  way.name = name;
  way.strategy = strategy;
  way.threads = threads;
  return way;
}

StrategyWay on_ranks(const std::string& name, const std::string& strategy, int ranks, int threads) {
  StrategyWay way = on_threads(name, strategy, std::max(1, threads / ranks));
  way.ranks = ranks;
  way.batch_shares = ranks;
  return way;
}

StrategyWay replicated(const std::string& dp_loss, int threads) {
  StrategyWay way = on_threads("dp-" + dp_loss, "dp", threads);
  way.dp_loss = dp_loss;
  way.replicas = kParts;
  return way;
}

int micro_batches_of(const StrategyWay& way, const StrategyWork& work) {
  return static_cast<int>(
      std::min<std::int64_t>(work.micro_batches, work.batch / way.batch_shares));
}

StrategyWay accumulated(const StrategyWork& work) {
  StrategyWay way = on_threads("single-accumulated", "single", work.threads);
  way.micro_batches = micro_batches_of(way, work);
  return way;
}

// `way` with a pipeline on two workers, which have one stage each or, with some schedules, two.
StrategyWay with_pipeline(StrategyWay way, const std::string& schedule, const StrategyWork& work) {
  const bool has_two_each = schedule == "interleaved" || schedule == "zbv";
  way.schedule = schedule;
  way.workers = kParts;
  way.stages = has_two_each ? 2 * kParts : kParts;
  way.batch_shares = std::max(1, way.ranks / kParts);
  way.micro_batches = micro_batches_of(way, work);
  way.recompute = work.recompute;
  return way;
}

StrategyWay naive_split(const StrategyWork& work) {
  StrategyWork whole = work;
  whole.micro_batches = 1;
  return with_pipeline(on_threads("split", "pipeline", work.threads), "gpipe", whole);
}

// As pipeline::unit_cost(), with another forward before each backward.
double recomputing_cost(const pipeline::Action& action) {
  const bool begins_backward =
      action.kind == pipeline::Kind::kBackward || action.kind == pipeline::Kind::kBackwardInput;
  return pipeline::unit_cost(action) + (begins_backward ? 1 : 0);
}

StrategyWay hybrid(const std::string& name, const StrategyWork& work) {
  return with_pipeline(on_ranks(name, "hybrid", kHybridRanks, work.threads), "1f1b", work);
}

}  // namespace

double StrategyWay::replayed_bubble(const std::vector<int>& whole_backward) const {
  if (!has_pipeline()) return 0;
  pipeline::Table table = pipeline::schedule_of(schedule, workers, micro_batches, stages / workers);
  for (const int stage : whole_backward) table = pipeline::with_whole_backward(table, stage);
  return pipeline::replay(table, recompute ? recomputing_cost : pipeline::unit_cost).bubble();
}

std::vector<StrategyWay> strategy_ways(const StrategyWork& work) {
  const int threads = work.threads;
  std::vector<StrategyWay> ways = {on_threads("single", "single", threads),
                                   on_threads("single-half", "single", threads / kParts),
                                   accumulated(work),
                                   replicated("gathered", threads),
                                   replicated("on-each", threads),
                                   on_ranks("ddp", "ddp", kParts, threads),
                                   on_ranks("zero1", "zero1", kParts, threads),
                                   naive_split(work)};
  for (const std::string& schedule : pipeline::schedule_names()) {
    const StrategyWay way = on_threads("pipeline-" + schedule, "pipeline", threads);
    ways.push_back(with_pipeline(way, schedule, work));
  }
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    const StrategyWay way = on_ranks("pipeline-ranks-" + schedule, "pipeline", kParts, threads);
    ways.push_back(with_pipeline(way, schedule, work));
  }
  ways.push_back(hybrid("hybrid", work));
  ways.push_back(hybrid("hybrid-sharded", work));
  ways.back().shard_optimizer = true;
  return ways;
}

}  // namespace lockstep::bench
