#include <lockstep/report/advice/advice.h>

#include <algorithm>
#include <map>
#include <optional>

#include <lockstep/core/strings.h>
#include <lockstep/report/text.h>

namespace lockstep {
namespace {

constexpr double kNoticeable = 0.05;      // share of a step
constexpr double kMostly = 2.0 / 3;       // of the waiting, for one rank
constexpr double kIdleGpu = 0.6;          // utilisation below which a GPU waits for its host
constexpr double kSmallBucket = 1 << 20;  // bytes
constexpr double kFewBuckets = 3;

using WaitedFor = std::map<int, double>::value_type;

std::string share_text(double share) { return fixed_text(100 * share, 0) + "%"; }

std::string milliseconds_text(double seconds) { return fixed_text(1e3 * seconds, 2) + " ms"; }

std::optional<Advice> loader_advice(const RunFacts& run) {
  if (run.data < kNoticeable) return std::nullopt;
  return Advice{.limit = "loader",
                .share = run.data,
                .figures = str("A step waits ", milliseconds_text(run.data * run.step_seconds),
                               " of ", milliseconds_text(run.step_seconds), " for the next batch (",
                               share_text(run.data), ")."),
                .option = run.loader == "native"
                              ? "Try more loader threads (--workers), images kept in memory "
                                "(--cache) or packed once "
                                "(lockstep data pack), and --decoding scaled for large photographs."
                              : "Try more loader threads (--workers), or --loader native."};
}

std::optional<Advice> straggler_advice(const RunFacts& run) {
  if (!run.trace || run.trace->step_seconds <= 0 || run.trace->waited_for.empty()) {
    return std::nullopt;
  }
  const double share = run.trace->longest_wait() / run.trace->step_seconds;
  if (share < kNoticeable) return std::nullopt;
  const auto& waited_for = run.trace->waited_for;
  const auto most = std::ranges::max_element(waited_for, {}, &WaitedFor::second);
  double all = 0;
  for (const auto& [rank, seconds] : waited_for) all += seconds;
  const double part = most->second / all;
  return Advice{
      .limit = "straggler",
      .share = share,
      .figures =
          str("Ranks wait up to ", milliseconds_text(share * run.trace->step_seconds), " of ",
              milliseconds_text(run.trace->step_seconds), " for later ones (", share_text(share),
              "), ", share_text(part), " of that time for rank ", most->first, "."),
      .option = part >= kMostly
                    ? str("Look at what else runs on the processors or the GPU of rank ",
                          most->first, ", and at its share of the data.")
                    : "No single rank is slow: the ranks' steps vary. Larger batches even that "
                      "out, and so do processors that no other program uses."};
}

// How much of rank 0's exposed communication is waiting for late ranks.
double arrival_share(const RunFacts& run) {
  if (!run.trace || run.trace->step_seconds <= 0 || !run.trace->waits.contains(0)) return 0;
  return std::min(run.trace->waits.at(0) / run.trace->step_seconds, run.communication);
}

std::optional<Advice> communication_advice(const RunFacts& run) {
  const double share = run.communication - arrival_share(run);
  if (run.ranks < 2 || share < kNoticeable) return std::nullopt;
  return Advice{.limit = "communication",
                .share = share,
                .figures = str("A step waits ", milliseconds_text(share * run.step_seconds),
                               " for messages that computing does not hide (", share_text(share),
                               "), over ", run.backend, "."),
                .option = run.strategy == "pipeline" || run.strategy == "hybrid"
                              ? "Try more micro-batches (--micro-batches), the schedule zb-h1, and "
                                "stages of equal time."
                              : "Try a larger batch (--batch-size), or fewer reductions "
                                "(--accumulate-grad-batches); on "
                                "several hosts also a faster network, or gradients in 16 bits "
                                "(bf16_compress_hook)."};
}

std::optional<Advice> bucket_advice(const RunFacts& run) {
  if (!run.trace || run.trace->reductions <= kFewBuckets) return std::nullopt;
  if (run.trace->reduction_bytes >= kSmallBucket || run.communication < kNoticeable)
    return std::nullopt;
  const double share =
      run.trace->reductions * run.trace->reduction_seconds / run.trace->step_seconds;
  if (share < kNoticeable) return std::nullopt;
  return Advice{.limit = "small buckets",
                .share = std::min(share, run.communication),
                .figures = str("A step has ", fixed_text(run.trace->reductions, 0),
                               " reductions of ", bytes_text(run.trace->reduction_bytes), ", ",
                               milliseconds_text(run.trace->reduction_seconds), " each."),
                .option = run.strategy == "hybrid"
                              ? "Try fewer pipelines, or stages with more parameters each."
                              : "Try larger buckets (--bucket-cap-mb)."};
}

std::optional<Advice> oversubscription_advice(const RunFacts& run) {
  const std::int64_t threads = static_cast<std::int64_t>(run.local_ranks) * run.threads_per_rank;
  if (run.device != "cpu" || run.processors <= 0 || threads <= run.processors) return std::nullopt;
  const double lost = 1 - static_cast<double>(run.processors) / static_cast<double>(threads);
  return Advice{
      .limit = "oversubscription",
      .share = lost,
      .figures = str(amount_of(run.local_ranks, "rank"), " of a host, of ",
                     amount_of(run.threads_per_rank, "thread"), " each, share ",
                     amount_of(run.processors, "processor"), "."),
      .option =
          "Try fewer ranks (--nproc-per-node) or threads (--threads): no more in all than there "
          "are processors."};
}

std::optional<Advice> launch_advice(const RunFacts& run) {
  if (!run.gpu_utilisation || *run.gpu_utilisation >= kIdleGpu) return std::nullopt;
  const double share = 1 - *run.gpu_utilisation - run.data - run.communication;
  if (share < kNoticeable) return std::nullopt;
  return Advice{
      .limit = "launch overhead",
      .share = share,
      .figures = str("The GPUs compute ", share_text(*run.gpu_utilisation),
                     " of the time, and waiting for data and messages does not explain the rest."),
      .option =
          "Try a larger batch (--batch-size): the host starts kernels more slowly than the GPU "
          "finishes them."};
}

Advice compute_advice(const RunFacts& run) {
  return {.limit = "compute",
          .share = run.compute,
          .figures = str("Forward, backward and optimizer take ", share_text(run.compute),
                         " of a step of ", milliseconds_text(run.step_seconds), "."),
          .option = run.device == "cpu" ? "More processors or ranks, and --precision bf16 where "
                                          "the processor has it, make it "
                                          "faster."
                                        : "More GPUs, and --precision bf16, make it faster."};
}

}  // namespace

std::vector<Advice> advise(const RunFacts& facts) {
  std::vector<Advice> advice;
  for (const auto rule : {loader_advice, straggler_advice, communication_advice, bucket_advice,
                          oversubscription_advice, launch_advice}) {
    if (auto found = rule(facts)) advice.push_back(std::move(*found));
  }
  std::ranges::stable_sort(advice, std::ranges::greater(), &Advice::share);
  constexpr double kMost = 0.5;
  if (advice.empty() || facts.compute > kMost) advice.push_back(compute_advice(facts));
  return advice;
}

std::string advice_text(const RunFacts& facts, const std::vector<Advice>& advice) {
  std::string text = str(facts.recipe, ": ", facts.strategy, ", ", amount_of(facts.ranks, "rank"),
                         ", ", milliseconds_text(facts.step_seconds), " a step of ",
                         facts.batch_per_rank, " images a rank\n");
  if (!facts.trace && facts.ranks > 1) {
    text +=
        "there is no trace.json, which would tell late ranks from slow messages: train with "
        "--trace\n";
  }
  for (const Advice& each : advice) {
    text += str(each.limit, ", ", share_text(each.share), ": ", each.figures, "\n  ", each.option,
                '\n');
  }
  return text;
}

}  // namespace lockstep
