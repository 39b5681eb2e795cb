#include <lockstep/bench/collectives/rank.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>

#include <lockstep/bench/collectives/beside_computing.h>
#include <lockstep/bench/collectives/calls.h>
#include <lockstep/bench/collectives/explain.h>
#include <lockstep/bench/collectives/rows.h>
#include <lockstep/bench/group.h>
#include <lockstep/bench/sizes.h>
#include <lockstep/bench/trace_folder.h>
#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/measuring/quantile.h>
#include <lockstep/core/memory.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/launch/rank_setup.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>
#include <lockstep/report/text.h>

namespace lockstep::bench {
namespace {

constexpr int kMostCalls = 200;
constexpr int kFewestCalls = 5;
constexpr int kFurtherWarmUps = 2;

// The amount of this host's memory that buffers may use.
std::int64_t memory_limit() {
  const HostMemory memory = host_memory();
  return memory.total == 0 ? std::int64_t{1} << 30 : memory.available / 10 * 7;
}

// Whether BenchCall::start() supports it.
bool has_asynchronous_form(CallKind collective) {
  return collective == CallKind::kAllReduce || collective == CallKind::kReduceScatter ||
         collective == CallKind::kAllGather;
}

class Measurement {
 public:
  Measurement(const BenchCommSettings& settings, ProcessGroup group)
      : settings_(settings), group_(group), start_line_(make_start_line(group, settings.timeout)) {}

  void run() {
    memory_limit_ = static_cast<double>(agree(start_line_, memory_limit()));
    processors_ = fewest_processors();
    const std::vector<bool> memories = memories_to_measure();
    say(lockstep::str(group_.backend(), ", ", group_.size(), " ranks, ",
                      detail::data_type_name(settings_.type), "\n", bench_comm_heading()));
    for (const CallKind collective : settings_.collectives) {
      const bool chooses = collective == CallKind::kAllReduce;
      const std::vector<Algorithm> native{Algorithm::kNative};
      for (const Algorithm algorithm : chooses ? settings_.algorithms : native) {
        for (const std::int64_t bytes : sizes_of(collective)) {
          for (const bool symmetric : memories) {
            if (collective == CallKind::kBarrier && symmetric != memories[0]) continue;
            measure({collective, algorithm, scalar_type_of(settings_.type), bytes, symmetric});
          }
        }
      }
    }
    say(copy_line());
    if (group_.rank() == 0 && !settings_.json.empty())
      report::write_text_file(settings_.json, to_json(rows_));
    // No rank may leave while rank 0 may still ask.
    start_line_.barrier();
  }

 private:
  std::vector<bool> memories_to_measure() const {
    const bool has_symmetric = group_.traits().uses_own_memory;
    if (!has_symmetric && !settings_.private_memory) {
      throw ConfigError(lockstep::str("bench comm: backend ", group_.backend(),
                                      " has no symmetric memory; measure private memory"));
    }
    std::vector<bool> memories;
    if (settings_.symmetric && has_symmetric) memories.push_back(true);
    if (settings_.private_memory) memories.push_back(false);
    return memories;
  }

  std::vector<std::int64_t> sizes_of(CallKind collective) const {
    if (collective == CallKind::kBarrier) return {0};
    return settings_.sizes;
  }

  void measure(const BenchCase& which) {
    const double needed = BenchCall::memory_needed(which, group_.size());
    if (needed > memory_limit_) {
      say(lockstep::str("left out: ", bench_call_name(which.collective), " of ",
                        binary_bytes_text(static_cast<double>(which.bytes)),
                        ", for which there is no ", binary_bytes_text(needed), " of memory"));
      return;
    }
    BenchCall call(group_, which);
    const std::vector<double> mine = time_calls(call);
    std::vector<std::vector<double>> all = gather_all(start_line_, mine);
    // The sender's part of a message may end long before the message has arrived.
    if (which.collective == CallKind::kSend) all = {all[1]};
    std::vector<double> slowest = all[0];
    for (const auto& rank : all) {
      for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], rank[i]);
    }
    rows_.push_back(summarize({.collective = which.collective,
                               .algorithm = algorithm_name(which.algorithm),
                               .backend = group_.backend(),
                               .ranks = group_.size(),
                               .hosts = hosts(),
                               .processors = processors_,
                               .dtype = detail::data_type_name(settings_.type),
                               .bytes = call.bytes(),
                               .symmetric = which.symmetric},
                              slowest));
    if (settings_.beside_computing) time_beside(call, static_cast<int>(mine.size()));
    say(table_line(rows_.back()));
    if (!settings_.trace.empty()) trace(rows_.back(), call);
  }

  // Processors available to the rank with the fewest.
  int fewest_processors() {
    const auto mine = static_cast<double>(available_cpus().size());
    double fewest = mine;
    for (const auto& rank : gather_all(start_line_, {mine})) fewest = std::min(fewest, rank[0]);
    return static_cast<int>(fewest);
  }

  // The other hosts have equal numbers of ranks.
  int hosts() const { return (group_.size() + group_.local_size() - 1) / group_.local_size(); }

  void trace(const BenchCommRow& row, BenchCall& call) {
    const std::string name =
        lockstep::str(bench_call_name(row.collective), ' ', row.algorithm, ' ', row.bytes,
                      " bytes ", row.symmetric ? "symmetric" : "private");
    int number = 0;
    const auto call_once = [&] {
      call.write(number);
      start_line_.barrier();
      call.run();
      call.check(number++);
    };
    trace_steps(
        trace_file_of(settings_.trace, name), call_once, [] { return std::vector<Span>(); },
        group_);
  }

  // Microseconds of each call on this rank. Each call uses newly written data, as in a training
  // step.
  std::vector<double> time_calls(BenchCall& call) {
    int number = 0;
    const auto time_one = [&] {
      call.write(number);
      start_line_.barrier();
      const auto start = Clock::now();
      call.run();
      const double seconds = seconds_since(start);
      call.check(number++);
      return seconds * 1e6;
    };
    time_one();
    const auto start = Clock::now();
    time_one();
    const double turn = std::max(seconds_since(start), 1e-7);
    const auto fitting =
        static_cast<std::int64_t>(std::min<double>(settings_.seconds / turn, kMostCalls));
    const std::int64_t wanted = settings_.repetitions > 0
                                    ? settings_.repetitions
                                    : std::max<std::int64_t>(fitting, kFewestCalls);
    const std::int64_t calls = agree(start_line_, wanted);
    if (calls > kFewestCalls) {
      for (int i = 0; i < kFurtherWarmUps; ++i) time_one();
    }
    std::vector<double> microseconds;
    for (std::int64_t i = 0; i < calls; ++i) microseconds.push_back(time_one());
    return microseconds;
  }

  // Adds to the last row the cost of as many calls during computation.
  void time_beside(BenchCall& call, int calls) {
    if (!has_asynchronous_form(rows_.back().collective)) return;
    std::vector<double> ends, taken;
    for (int number = 0; number < calls; ++number) {
      call.write(number);
      const BesideTimes times =
          compute_beside([this] { start_line_.barrier(); }, [&call] { return call.start(); });
      call.check(number);
      ends.push_back(times.until_end_us);
      taken.push_back(times.taken_us);
    }
    const auto all_ends = gather_all(start_line_, ends);
    const auto all_taken = gather_all(start_line_, taken);
    for (int number = 0; number < calls; ++number) {
      const auto call_index = static_cast<std::size_t>(number);
      double slowest = 0, sum = 0;
      for (const auto& rank : all_ends) slowest = std::max(slowest, rank[call_index]);
      for (const auto& rank : all_taken) sum += rank[call_index];
      ends[call_index] = slowest;
      taken[call_index] = sum / group_.size();
    }
    rows_.back().beside_us = median(std::move(ends));
    rows_.back().taken_us = median(std::move(taken));
  }

  // The upper bound of all results: how fast a rank reads and writes while all ranks copy.
  std::string copy_line() {
    const auto bytes =
        static_cast<std::size_t>(std::min(64.0 * (1 << 20), memory_limit_ / (4.0 * group_.size())));
    const auto from = torch::ones({static_cast<std::int64_t>(bytes)}, torch::kUInt8);
    auto to = torch::zeros_like(from);
    std::vector<double> seconds;
    for (int i = 0; i < 9; ++i) {
      start_line_.barrier();
      const auto start = Clock::now();
      std::memcpy(to.data_ptr(), from.data_ptr(), bytes);
      seconds.push_back(seconds_since(start));
    }
    std::nth_element(seconds.begin(), seconds.begin() + 4, seconds.end());
    double total = 0;
    for (const auto& rank :
         gather_all(start_line_, {2.0 * static_cast<double>(bytes) / seconds[4] / 1e9})) {
      total += rank[0];
    }
    return lockstep::str("copying ", binary_bytes_text(static_cast<double>(bytes)),
                         " on all ranks at once, each reads and writes ",
                         report::fixed_text(total / group_.size(), 1), " GB/s");
  }

  void say(const std::string& line) const {
    if (group_.rank() != 0) return;
    std::cout << line << '\n';
    report::flush_output(std::cout);
  }

  const BenchCommSettings& settings_;
  ProcessGroup group_;
  ProcessGroup start_line_;
  double memory_limit_ = 0;
  int processors_ = 0;
  std::vector<BenchCommRow> rows_;
};

}  // namespace

void bench_comm_rank(const BenchCommSettings& settings) {
  constexpr int kErrors = 2;
  if (!log_enabled(LogLevel::kDebug)) FLAGS_caffe2_log_level = kErrors;
  launch::prepare_rank(settings.worker ? *settings.worker : worker_environment().value(), 1);
  at::set_num_threads(1);
  ProcessGroup group =
      init_process_group({.backend = settings.backend, .timeout = settings.timeout});
  joined_group();
  if (settings.explain) return explain_rank(settings, group);
  Measurement(settings, group).run();
}

}  // namespace lockstep::bench
