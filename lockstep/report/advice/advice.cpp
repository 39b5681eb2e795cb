#include <lockstep/report/advice/advice.h>

#include <algorithm>
#include <map>
#include <optional>

#include <lockstep/core/strings.h>
#include <lockstep/report/text.h>

namespace lockstep::report {
namespace {

constexpr double kNoticeable = 0.05;      // share of a step
constexpr double kMostly = 2.0 / 3;       // this share of the waiting is caused by one rank
constexpr double kIdleGpu = 0.6;          // utilisation below which a GPU waits for its host
constexpr double kSmallBucket = 1 << 20;  // bytes
constexpr double kFewBuckets = 3;

using WaitedFor = std::map<int, double>::value_type;

bool is_pipeline(const RunFacts& run) {
  return run.strategy == "pipeline" || run.strategy == "hybrid";
}

// The time of a step that each limit claims on rank 0, without overlaps. The parts of communication
// add up to it, and so do the parts of computing.
struct Parts {
  explicit Parts(const RunFacts& run);

  // Parts of communication:
  double arrival = 0;      // waits for late ranks
  double stage_waits = 0;  // waits for another stage
  double small_buckets = 0;
  double transfer = 0;  // remainder
  // Parts of computing:
  double others_wait = 0;  // rank 0 is late: other ranks wait for it
  double oversubscription = 0;
  double other_programs = 0;
  double launch = 0;
  double compute = 0;  // remainder
};

// Takes at most `most` from what is left of a part of a step.
double take(double& left, double most) {
  const double taken = std::clamp(most, 0.0, left);
  left -= taken;
  return taken;
}

// Seconds of the trace as a share of its steps. Those are not the epochs' steps but some of the
// last ones, which may be faster or slower.
double share_of_trace(const RunFacts& run, double seconds) {
  if (!run.trace || run.trace->step_seconds <= 0) return 0;
  return seconds / run.trace->step_seconds;
}

double of_rank_0(const std::map<int, double>& seconds) {
  const auto found = seconds.find(0);
  return found == seconds.end() ? 0 : found->second;
}

// The time that would be saved if the smallest possible number of buckets had the same bytes.
double lost_to_small_buckets(const RunFacts& run) {
  if (!run.trace || run.trace->reductions <= kFewBuckets) return 0;
  if (run.trace->reduction_bytes >= kSmallBucket) return 0;
  const double all = share_of_trace(run, run.trace->reductions * run.trace->reduction_seconds);
  return all * (1 - kFewBuckets / run.trace->reductions);
}

// The share of computing time for which a thread has no processor, because there are too few.
double oversubscribed_part(const RunFacts& run) {
  const std::int64_t threads = static_cast<std::int64_t>(run.local_ranks) * run.threads_per_rank;
  if (run.device != "cpu" || run.processors <= 0 || threads <= run.processors) return 0;
  return 1 - static_cast<double>(run.processors) / static_cast<double>(threads);
}

// Other programs may use processors that the run leaves idle. Their cost is the time for which a
// thread was ready and had no processor.
double lost_to_other_programs(const RunFacts& run) {
  const bool are_there = run.other_programs.value_or(0) >= kNoticeable;
  return are_there && oversubscribed_part(run) == 0 ? run.processor_wait.value_or(0) : 0;
}

double idle_gpu(const RunFacts& run) {
  if (!run.gpu_utilisation || *run.gpu_utilisation >= kIdleGpu) return 0;
  return 1 - *run.gpu_utilisation - run.data - run.first_batch - run.communication;
}

Parts::Parts(const RunFacts& run) : transfer(run.communication), compute(run.compute) {
  const bool has_stage_waits = run.trace && !run.trace->stage_waits.empty();
  const double stages =
      has_stage_waits ? share_of_trace(run, of_rank_0(run.trace->stage_waits)) : run.stage_waits;
  stage_waits = take(transfer, std::min(stages, run.stage_waits));
  // For each bucket, ranks must meet and wait a little. Larger buckets save this time, too.
  small_buckets = take(transfer, lost_to_small_buckets(run));
  if (run.trace) {
    arrival = take(transfer, share_of_trace(run, of_rank_0(run.trace->waits)));
    others_wait =
        take(compute, share_of_trace(run, run.trace->longest_wait()) - arrival - small_buckets);
  }
  oversubscription = take(compute, run.compute * oversubscribed_part(run));
  other_programs = take(compute, lost_to_other_programs(run));
  launch = take(compute, idle_gpu(run));
}

std::string share_text(double share) { return fixed_text(100 * share, 0) + "%"; }

std::string milliseconds_text(double seconds) { return fixed_text(1e3 * seconds, 2) + " ms"; }

// "4.00 ms of 10.00 ms"
std::string part_of_step(const RunFacts& run, double share) {
  return str(milliseconds_text(share * run.step_seconds), " of ",
             milliseconds_text(run.step_seconds));
}

const char* loader_option(const RunFacts& run) {
  return run.loader == "native"
             ? "Try more loader threads (--workers), images kept in memory (--cache) or packed "
               "once "
               "(lockstep data pack), and --decoding scaled for large photographs."
             : "Try more loader threads (--workers), or --loader native.";
}

std::optional<Advice> loader_advice(const RunFacts& run, const Parts&) {
  return Advice{.limit = "loader",
                .share = run.data,
                .figures = str("A step waits ", part_of_step(run, run.data),
                               " for the next batch (", share_text(run.data), ")."),
                .option = loader_option(run)};
}

std::optional<Advice> first_batch_advice(const RunFacts& run, const Parts&) {
  if (run.least_first_batch < kNoticeable) return std::nullopt;
  return Advice{
      .limit = "first batch",
      .share = run.first_batch,
      .figures = str("Each epoch begins with a wait for its first batch, while the loader "
                     "starts anew: ",
                     share_text(run.first_batch), " of the time."),
      .option = str("Longer epochs make it rarer. ", loader_option(run))};
}

std::optional<Advice> straggler_advice(const RunFacts& run, const Parts& parts) {
  if (!run.trace || run.trace->waited_for.empty()) return std::nullopt;
  const auto& waited_for = run.trace->waited_for;
  const auto most = std::ranges::max_element(waited_for, {}, &WaitedFor::second);
  double all = 0;
  for (const auto& [rank, seconds] : waited_for) all += seconds;
  if (all <= 0) return std::nullopt;
  const double share = parts.arrival + parts.others_wait;
  const double part = most->second / all;
  return Advice{
      .limit = "straggler",
      .share = share,
      .figures =
          str("Ranks wait up to ", part_of_step(run, share), " for later ones (", share_text(share),
              "), ", share_text(part), " of that time for rank ", most->first, "."),
      .option = part >= kMostly
                    ? str("Look at what else runs on the processors or the GPU of rank ",
                          most->first, ", and at its share of the data.")
                    : "No single rank is slow: the ranks' steps vary. Larger batches even that "
                      "out, and so do processors that no other program uses."};
}

std::optional<Advice> bubble_advice(const RunFacts& run, const Parts& parts) {
  const bool has_messages = !run.trace || run.trace->stage_waits.empty();
  return Advice{
      .limit = "pipeline bubble",
      .share = parts.stage_waits,
      .figures = str("A worker waits ", part_of_step(run, parts.stage_waits),
                     " for another stage (", share_text(parts.stage_waits), ")",
                     has_messages && run.ranks > 1 ? ", the way of the messages included." : "."),
      .option =
          "Try more micro-batches (--micro-batches), the schedule zb-h1, and stages "
          "of equal time."};
}

std::optional<Advice> communication_advice(const RunFacts& run, const Parts& parts) {
  if (run.ranks < 2) return std::nullopt;
  return Advice{.limit = "communication",
                .share = parts.transfer,
                .figures = str("A step waits ", part_of_step(run, parts.transfer),
                               " for messages that computing does not hide (",
                               share_text(parts.transfer), "), over ", run.backend, "."),
                .option = is_pipeline(run)
                              ? "Try cuts where fewer activations pass from one stage to the next, "
                                "and on several hosts a faster network."
                              : "Try a larger batch (--batch-size), or fewer reductions "
                                "(--accumulate-grad-batches); on "
                                "several hosts also a faster network, or gradients in 16 bits "
                                "(bf16_compress_hook)."};
}

std::optional<Advice> bucket_advice(const RunFacts& run, const Parts& parts) {
  if (!run.trace) return std::nullopt;
  return Advice{.limit = "small buckets",
                .share = parts.small_buckets,
                .figures = str("A step has ", fixed_text(run.trace->reductions, 0),
                               " reductions of ", bytes_text(run.trace->reduction_bytes), ", ",
                               milliseconds_text(run.trace->reduction_seconds),
                               " each in the trace; fewer and larger ones would save up to ",
                               part_of_step(run, parts.small_buckets), "."),
                .option = run.strategy == "hybrid"
                              ? "Try fewer pipelines, or stages with more parameters each."
                              : "Try larger buckets (--bucket-cap-mb)."};
}

std::optional<Advice> oversubscription_advice(const RunFacts& run, const Parts& parts) {
  return Advice{
      .limit = "oversubscription",
      .share = parts.oversubscription,
      .figures =
          str(amount_of(run.local_ranks, "rank"), " of a host, of ",
              amount_of(run.threads_per_rank, "thread"), " each, share ",
              amount_of(run.processors, "processor"), ": a thread that is ready to compute waits ",
              part_of_step(run, parts.oversubscription), " for a processor."),
      .option =
          "Try fewer ranks (--nproc-per-node) or threads (--threads): no more in all than there "
          "are processors."};
}

std::optional<Advice> other_programs_advice(const RunFacts& run, const Parts& parts) {
  return Advice{
      .limit = kOtherPrograms,
      .share = parts.other_programs,
      .figures = str("Other programs used ", share_text(run.other_programs.value_or(0)),
                     " of the processors. In each step, a thread that was ready to compute waited ",
                     part_of_step(run, parts.other_programs), " for a processor."),
      .option =
          "Stop them, or leave processors free for them: fewer ranks (--nproc-per-node) or threads "
          "(--threads)."};
}

std::optional<Advice> launch_advice(const RunFacts& run, const Parts& parts) {
  return Advice{
      .limit = "launch overhead",
      .share = parts.launch,
      .figures = str("The GPUs compute ", share_text(run.gpu_utilisation.value_or(0)),
                     " of the time, and waiting for data and messages does not explain the rest."),
      .option =
          "Try a larger batch (--batch-size): the host starts kernels more slowly than the GPU "
          "finishes them."};
}

bool is_bfloat16_faster(const RunFacts& run) { return run.has_bfloat16 && run.precision == "32"; }

Advice compute_advice(const RunFacts& run, const Parts& parts) {
  const bool is_rest = run.compute - parts.compute >= kNoticeable;
  return {
      .limit = "compute",
      .share = parts.compute,
      .figures = str(
          "Forward, backward and optimizer take ", share_text(run.compute), " of a step of ",
          milliseconds_text(run.step_seconds),
          is_rest ? str("; ", share_text(parts.compute), " without what other limits add.") : "."),
      .option = str(run.device == "cpu" ? "More processors or ranks" : "More GPUs",
                    is_bfloat16_faster(run) ? ", and --precision bf16," : "", " make it faster.")};
}

// Names what takes RunFacts::batch_per_rank images in a step; empty if it is the whole run.
const char* taken_by(const RunFacts& facts) {
  if (facts.pipelines == 0) return " a rank";
  return facts.pipelines > 1 ? " a pipeline" : "";
}

}  // namespace

std::vector<Advice> advise(const RunFacts& facts) {
  const Parts parts(facts);
  std::vector<Advice> advice;
  for (const auto rule :
       {loader_advice, first_batch_advice, straggler_advice, bubble_advice, communication_advice,
        bucket_advice, oversubscription_advice, other_programs_advice, launch_advice}) {
    auto found = rule(facts, parts);
    if (found && found->share >= kNoticeable) advice.push_back(std::move(*found));
  }
  std::ranges::stable_sort(advice, std::ranges::greater(), &Advice::share);
  constexpr double kMost = 0.5;
  if (advice.empty() || facts.compute > kMost) advice.push_back(compute_advice(facts, parts));
  return advice;
}

std::string basis_of_shares(const RunFacts& facts) {
  std::string text = str("Percentages are shares of the mean step of rank 0 in ", facts.epochs,
                         " (", milliseconds_text(facts.step_seconds), ").");
  if (facts.trace) {
    text += str(" Values from the trace (", amount_of(facts.trace->steps, "step"), " of ",
                milliseconds_text(facts.trace->step_seconds), ") are scaled to ",
                milliseconds_text(facts.step_seconds), ".");
  }
  return text;
}

std::string advice_text(const RunFacts& facts, const std::vector<Advice>& advice) {
  std::string text = str(facts.recipe, ": ", facts.strategy, ", ", amount_of(facts.ranks, "rank"),
                         ", ", milliseconds_text(facts.step_seconds), " a step of ",
                         amount_of(facts.batch_per_rank, "image"), taken_by(facts), "\n",
                         basis_of_shares(facts), "\n");
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

}  // namespace lockstep::report
