#include <lockstep/bench/collectives/explain.h>

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include <lockstep/bench/collectives/calls.h>
#include <lockstep/bench/collectives/trace_svg.h>
#include <lockstep/bench/collectives/trace_text.h>
#include <lockstep/bench/group.h>
#include <lockstep/comm/algorithms/choice.h>
#include <lockstep/comm/kernels/reduce.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/measuring/quantile.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>
#include <lockstep/report/terminal.h>

namespace lockstep::bench {
namespace {

constexpr int kWarmUps = 3;
constexpr int kRuns = 21;    // odd: the median is one of them
constexpr int kRounds = 41;  // rounds of the ping-pong
constexpr std::size_t kLongMessage = std::size_t{256} << 10;

// On rank 0, half the time that a message of `bytes` takes from rank 0 to rank 1 and back; 0 on
// other ranks.
double message_seconds(ProcessGroup& group, std::size_t bytes) {
  const auto message = torch::zeros({static_cast<std::int64_t>(bytes)}, torch::kUInt8);
  std::vector<double> seconds{0};
  for (int round = 0; round < kRounds && group.rank() < 2; ++round) {
    const auto start = Clock::now();
    if (group.rank() == 0) group.send(message, 1);
    group.recv(message, 1 - group.rank());
    if (group.rank() == 1) group.send(message, 0);
    seconds.push_back(seconds_since(start) / 2);
  }
  return median(seconds);
}

double seconds_to_add(std::size_t bytes) {
  const std::vector<float> from(bytes / sizeof(float), 1);
  std::vector<float> to = from;
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(to.data()),
                                      reinterpret_cast<const std::byte*>(from.data())};
  std::byte* const destinations[] = {reinterpret_cast<std::byte*>(to.data())};
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    comm::reduce(sources, destinations, to.size(), detail::DataType::kFloat32, ReduceOp::kSum);
    seconds.push_back(seconds_since(start));
  }
  return median(seconds);
}

// Measured on rank 0 while the others idle.
comm::CostModel measure_model(ProcessGroup& group, ProcessGroup& start_line) {
  comm::CostModel model;
  start_line.barrier();
  model.alpha_seconds = message_seconds(group, 1);
  const double seconds = message_seconds(group, kLongMessage);
  start_line.barrier();
  const auto bytes = static_cast<double>(kLongMessage);
  model.beta_seconds_per_byte = std::max(seconds - model.alpha_seconds, 0.0) / bytes;
  model.gamma_seconds_per_byte = seconds_to_add(kLongMessage) / bytes;
  start_line.barrier();
  return model;
}

// Index of the run whose slowest rank took the median time.
std::size_t median_run(ProcessGroup& group, const std::vector<comm::Trace>& traces) {
  std::vector<double> mine;
  for (const comm::Trace& trace : traces)
    mine.push_back(static_cast<double>(trace.end_ns - trace.start_ns));
  std::vector<std::pair<double, std::size_t>> slowest(traces.size());
  for (const auto& rank : gather_all(group, mine)) {
    for (std::size_t i = 0; i < rank.size(); ++i)
      slowest[i] = {std::max(slowest[i].first, rank[i]), i};
  }
  std::sort(slowest.begin(), slowest.end());
  return slowest[slowest.size() / 2].second;
}

std::vector<comm::Trace> trace_runs(const BenchCommSettings& settings, ProcessGroup& group,
                                    ProcessGroup& start_line, torch::Tensor tensor) {
  std::vector<comm::Trace> traces;
  for (int run = -kWarmUps; run < kRuns; ++run) {
    tensor.fill_(1);
    comm::Trace trace;
    start_line.barrier();
    {
      const comm::TraceScope scope(trace);
      group.all_reduce(tensor, ReduceOp::kSum, settings.explain->algorithm);
    }
    if (run >= 0) traces.push_back(std::move(trace));
  }
  return traces;
}

void show(const ExplainSettings& explain, const TracedRun& run) {
  const Terminal terminal = detect_terminal(STDOUT_FILENO);
  std::cout << trace_text(run, terminal.columns(), terminal.unicode);
  if (!explain.svg.empty()) {
    report::write_text_file(explain.svg, trace_svg(run));
    std::cout << "drawn in " << explain.svg.string() << '\n';
  }
  report::flush_output(std::cout);
}

}  // namespace

void explain_rank(const BenchCommSettings& settings, ProcessGroup group) {
  if (group.local_size() != group.size()) {
    throw ConfigError(
        "bench comm: an explanation compares the clocks of one host, but the ranks are on several; "
        "start all of them on one");
  }
  const ExplainSettings& explain = *settings.explain;
  ProcessGroup start_line = make_start_line(group, settings.timeout);
  const comm::CostModel model = measure_model(group, start_line);
  const std::size_t element = detail::element_size(settings.type);
  const std::size_t count =
      std::max<std::size_t>(static_cast<std::size_t>(explain.bytes) / element, 1);
  const auto tensor =
      torch::zeros({static_cast<std::int64_t>(count)}, scalar_type_of(settings.type));
  const std::vector<comm::Trace> traces = trace_runs(settings, group, start_line, tensor);
  const std::size_t chosen = median_run(start_line, traces);
  const std::vector<std::string> texts = start_line.gather_object(comm::to_text(traces[chosen]), 0);
  if (group.rank() == 0) {
    TracedRun run{.algorithm = algorithm_name(explain.algorithm),
                  .backend = group.backend(),
                  .dtype = detail::data_type_name(settings.type),
                  .bytes = count * element,
                  .count = count,
                  .model = model,
                  .predicted_seconds = {},
                  .traces = {},
                  .repetitions = kRuns,
                  .processors = settings.processors};
    for (const std::string& text : texts) run.traces.push_back(comm::trace_from_text(text));
    // 16-bit floats may be sent as float32.
    const comm::TraceEvent& first = run.traces.at(0).events.at(0);
    const std::size_t on_wire = first.bytes / first.range.count;
    const comm::ScheduleRequest request{
        .size = group.size(),
        .count = count,
        .chunk = comm::default_chunk(explain.algorithm, group.traits(), group.size(), on_wire)};
    run.predicted_seconds =
        comm::predict_seconds(comm::make_schedules(explain.algorithm, request), on_wire, model);
    show(explain, run);
  }
  start_line.barrier();
}

}  // namespace lockstep::bench
