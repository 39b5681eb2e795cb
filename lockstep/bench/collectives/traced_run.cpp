#include <lockstep/bench/collectives/traced_run.h>

#include <algorithm>
#include <set>
#include <tuple>

#include <lockstep/bench/sizes.h>
#include <lockstep/core/strings.h>

namespace lockstep::bench {
namespace {

template <class Call>
void for_each_event(const TracedRun& run, Call&& call) {
  for (std::size_t rank = 0; rank < run.traces.size(); ++rank) {
    for (const comm::TraceEvent& event : run.traces[rank].events)
      call(static_cast<int>(rank), event);
  }
}

}  // namespace

std::vector<Arrow> arrows_of(const TracedRun& run) {
  // Rank, step, and first element of the combined range.
  std::set<std::tuple<int, int, std::size_t>> combined;
  for_each_event(run, [&](int rank, const comm::TraceEvent& event) {
    if (event.kind == comm::TraceEvent::Kind::kReduce)
      combined.insert({rank, event.step, event.range.first});
  });
  std::vector<Arrow> arrows;
  for_each_event(run, [&](int rank, const comm::TraceEvent& event) {
    if (event.kind != comm::TraceEvent::Kind::kSend) return;
    arrows.push_back({event.step, rank, event.peer, event.range, event.bytes,
                      combined.contains({event.peer, event.step, event.range.first})});
  });
  std::stable_sort(arrows.begin(), arrows.end(), [](const Arrow& a, const Arrow& b) {
    return std::tie(a.step, a.from, a.to, a.range.first) <
           std::tie(b.step, b.from, b.to, b.range.first);
  });
  return arrows;
}

PieceNames::PieceNames(const TracedRun& run) : count_(run.count) {
  std::set<std::size_t> cuts{0};
  for_each_event(run, [&](int, const comm::TraceEvent& event) {
    cuts.insert(event.range.first);
    if (event.range.end() < run.count) cuts.insert(event.range.end());
  });
  starts_.assign(cuts.begin(), cuts.end());
}

std::size_t PieceNames::first_piece(comm::ScheduledRange range) const {
  const auto found = std::lower_bound(starts_.begin(), starts_.end(), range.first);
  return static_cast<std::size_t>(found - starts_.begin());
}

std::string PieceNames::name(comm::ScheduledRange range) const {
  if (range.first == 0 && range.end() == count_) return "all";
  const std::size_t first = first_piece(range);
  const auto after = std::lower_bound(starts_.begin(), starts_.end(), range.end());
  const auto last = static_cast<std::size_t>(after - starts_.begin()) - 1;
  return first == last ? str(first) : str(first, "-", last);
}

std::vector<RankTotals> totals_of(const TracedRun& run) {
  std::vector<RankTotals> totals(run.traces.size());
  for (std::size_t rank = 0; rank < totals.size(); ++rank) {
    const comm::Trace& trace = run.traces[rank];
    totals[rank].seconds = static_cast<double>(trace.end_ns - trace.start_ns) / 1e9;
    totals[rank].predicted_seconds = run.predicted_seconds.at(rank);
  }
  for_each_event(run, [&](int rank, const comm::TraceEvent& event) {
    RankTotals& total = totals[static_cast<std::size_t>(rank)];
    switch (event.kind) {
      case comm::TraceEvent::Kind::kSend:
        ++total.messages_sent;
        total.bytes_sent += event.bytes;
        break;
      case comm::TraceEvent::Kind::kReceive:
        total.bytes_received += event.bytes;
        break;
      case comm::TraceEvent::Kind::kReduce:
        total.reduce_seconds += static_cast<double>(event.end_ns - event.start_ns) / 1e9;
    }
  });
  return totals;
}

int step_count(const TracedRun& run) {
  int steps = 0;
  for_each_event(
      run, [&](int, const comm::TraceEvent& event) { steps = std::max(steps, event.step + 1); });
  return steps;
}

std::int64_t begin_ns(const TracedRun& run) {
  std::int64_t begin = run.traces.at(0).start_ns;
  for (const comm::Trace& trace : run.traces) begin = std::min(begin, trace.start_ns);
  return begin;
}

std::int64_t end_ns(const TracedRun& run) {
  std::int64_t end = run.traces.at(0).end_ns;
  for (const comm::Trace& trace : run.traces) end = std::max(end, trace.end_ns);
  return end;
}

std::string title_of(const TracedRun& run) {
  return str(run.algorithm, " all-reduce of ", binary_bytes_text(static_cast<double>(run.bytes)),
             " ", run.dtype, " on ", run.traces.size(), " ranks over ", run.backend);
}

std::string model_text(const comm::CostModel& model) {
  const double beta_ns = model.beta_seconds_per_byte * 1e9;
  return str("alpha ", short_number(model.alpha_seconds * 1e6), " us per message, beta ",
             short_number(beta_ns), " ns per byte (", short_number(beta_ns > 0 ? 1 / beta_ns : 0),
             " GB/s), gamma ", short_number(model.gamma_seconds_per_byte * 1e9),
             " ns per byte added");
}

}  // namespace lockstep::bench
