#include <lockstep/parallel/ddp/ddp_statistics.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <lockstep/core/error.h>
#include <lockstep/core/measuring/quantile.h>
#include <lockstep/parallel/base/trace_of_ranks.h>
#include <lockstep/parallel/ddp/step_recorder.h>

namespace lockstep {
namespace {

double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// The time in [begin, end] during which any bucket was in progress. Buckets start in order.
double busy_ms(const detail::StepTimes& step, Clock::time_point begin, Clock::time_point end) {
  Clock::duration busy{};
  Clock::time_point covered = begin;
  for (const detail::BucketTimes& bucket : step.buckets) {
    const auto from = std::max(bucket.start, covered);
    const auto to = std::min(bucket.end, end);
    if (to > from) busy += to - from;
    covered = std::max(covered, to);
  }
  return milliseconds(busy);
}

std::string bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

std::vector<double> values_of(const std::string& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(double));
  return values;
}

// All ranks have measured the same last steps; a recorder that began later has fewer of them.
std::vector<RankStatistics> compare_ranks(const std::vector<std::vector<double>>& computes) {
  std::size_t shared = computes.front().size();
  for (const auto& times : computes) shared = std::min(shared, times.size());
  const auto at = [&](std::size_t rank, std::size_t step) {
    return computes[rank][computes[rank].size() - shared + step];
  };
  std::vector<RankStatistics> ranks;
  for (std::size_t rank = 0; rank < computes.size(); ++rank) {
    double wait = 0;
    for (std::size_t step = 0; step < shared; ++step) {
      double slowest = 0;
      for (std::size_t other = 0; other < computes.size(); ++other)
        slowest = std::max(slowest, at(other, step));
      wait += slowest - at(rank, step);
    }
    ranks.push_back({static_cast<int>(rank), median(computes[rank]),
                     shared == 0 ? 0 : wait / static_cast<double>(shared)});
  }
  return ranks;
}

BucketStatistics describe(const GradBucket& bucket, const std::vector<detail::StepTimes>& steps) {
  BucketStatistics statistics{.index = bucket.index, .parameters = bucket.parameters.size()};
  statistics.dtype = c10::toString(bucket.parameters.front().scalar_type());
  for (const auto& gradient : bucket.gradients) {
    statistics.bytes += static_cast<std::int64_t>(gradient.nbytes());
  }
  std::vector<double> ready, start, end;
  for (const detail::StepTimes& step : steps) {
    const detail::BucketTimes& times = step.buckets[bucket.index];
    ready.push_back(milliseconds(times.ready - step.backward));
    start.push_back(milliseconds(times.start - step.backward));
    end.push_back(milliseconds(times.end - step.backward));
  }
  statistics.ready_ms = median(std::move(ready));
  statistics.start_ms = median(std::move(start));
  statistics.end_ms = median(std::move(end));
  return statistics;
}

std::string size_text(std::int64_t bytes) {
  char text[32];
  if (bytes == 0) return "sparse";
  if (bytes < (1 << 20)) {
    std::snprintf(text, sizeof(text), "%.1f KiB", static_cast<double>(bytes) / 1024);
  } else {
    std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  }
  return text;
}

template <class... Values>
std::string line(const char* format, Values... values) {
  char text[160];
  std::snprintf(text, sizeof(text), format, values...);
  return std::string(text) + '\n';
}

void add_spans(std::vector<Span>& spans, const detail::StepTimes& step, std::int64_t number,
               const std::vector<GradBucket>& buckets, const std::string& group_name) {
  const std::string name = str("step ", number);
  spans.push_back({name, "ddp", step.begin, step.reduced, "ddp"});
  spans.push_back({"backward", "backward", step.backward, step.computed, "backward"});
  if (step.reduced > step.computed) {
    spans.push_back(
        {"exposed communication", "communication", step.computed, step.reduced, "backward"});
  }
  for (const GradBucket& bucket : buckets) {
    const detail::BucketTimes& times = step.buckets[bucket.index];
    const std::string track = str("bucket ", bucket.index);
    if (times.start > times.ready)
      spans.push_back({"waits for its turn", "communication", times.ready, times.start, track});
    spans.push_back(
        {"reduction",
         "communication",
         times.start,
         times.end,
         track,
         {{"bytes", std::to_string(bucket.buffer.defined() ? bucket.buffer.nbytes() : 0)},
          {"parameters", std::to_string(bucket.parameters.size())}},
         str(group_name, " step ", number, " bucket ", bucket.index)});
  }
}

}  // namespace

DdpStatistics detail::summarize(const std::vector<GradBucket>& buckets,
                                const detail::StepRecorder& times, ProcessGroup& group) {
  const std::vector<detail::StepTimes> steps = times.last();
  DdpStatistics statistics{.steps = times.steps(),
                           .measured = static_cast<std::int64_t>(steps.size())};
  statistics.rebuilt = buckets.front().layout > 0;
  std::vector<double> backward, communication, hidden, exposed, compute;
  for (const detail::StepTimes& step : steps) {
    backward.push_back(milliseconds(step.computed - step.backward));
    communication.push_back(busy_ms(step, step.backward, step.reduced));
    hidden.push_back(busy_ms(step, step.backward, step.computed));
    exposed.push_back(milliseconds(step.reduced - step.computed));
    compute.push_back(milliseconds(step.computed - step.begin));
  }
  statistics.backward_ms = median(std::move(backward));
  statistics.communication_ms = median(std::move(communication));
  statistics.hidden_ms = median(std::move(hidden));
  statistics.exposed_ms = median(std::move(exposed));
  for (const GradBucket& bucket : buckets) statistics.buckets.push_back(describe(bucket, steps));

  std::vector<std::vector<double>> computes;
  for (const std::string& bytes : group.all_gather_object(bytes_of(compute)))
    computes.push_back(values_of(bytes));
  statistics.ranks = compare_ranks(computes);
  const auto [fastest, slowest] =
      std::minmax_element(statistics.ranks.begin(), statistics.ranks.end(),
                          [](const auto& a, const auto& b) { return a.compute_ms < b.compute_ms; });
  statistics.skew_ms = slowest->compute_ms - fastest->compute_ms;
  return statistics;
}

std::string to_table(const DdpStatistics& statistics) {
  std::string table =
      line("%lld steps, the last %lld measured; buckets %s",
           static_cast<long long>(statistics.steps), static_cast<long long>(statistics.measured),
           statistics.rebuilt ? "in the order in which gradients arrived"
                              : "in reverse order of registration");
  table += line("backward %.3f ms; communication %.3f ms: %.3f hidden behind it, %.3f exposed",
                statistics.backward_ms, statistics.communication_ms, statistics.hidden_ms,
                statistics.exposed_ms);
  table += line("%6s %10s %12s %9s %10s %10s %10s", "bucket", "parameters", "size", "dtype",
                "ready ms", "start ms", "end ms");
  for (const BucketStatistics& bucket : statistics.buckets) {
    table += line("%6zu %10zu %12s %9s %10.3f %10.3f %10.3f", bucket.index, bucket.parameters,
                  size_text(bucket.bytes).c_str(), bucket.dtype.c_str(), bucket.ready_ms,
                  bucket.start_ms, bucket.end_ms);
  }
  table += line("%6s %14s %22s", "rank", "computes ms", "waits for slowest ms");
  for (const RankStatistics& rank : statistics.ranks) {
    table += line("%6d %14.3f %22.3f", rank.rank, rank.compute_ms, rank.wait_ms);
  }
  return table;
}

std::vector<Span> detail::ddp_spans(const std::vector<GradBucket>& buckets,
                                    const detail::StepRecorder& times,
                                    const std::string& group_name) {
  std::vector<Span> spans;
  const std::vector<detail::StepTimes> steps = times.last();
  std::int64_t number = times.steps() - static_cast<std::int64_t>(steps.size());
  for (const detail::StepTimes& step : steps) add_spans(spans, step, ++number, buckets, group_name);
  return spans;
}

void detail::write_ddp_trace(const std::filesystem::path& path,
                             const std::vector<GradBucket>& buckets,
                             const detail::StepRecorder& times, ProcessGroup& group) {
  parallel::write_trace_of_ranks(path, detail::ddp_spans(buckets, times, "ddp"), group);
}

}  // namespace lockstep
