#include <lockstep/core/trace/chrome_trace.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include <lockstep/core/encoding/json_text.h>
#include <lockstep/core/file.h>
#include <lockstep/core/strings.h>
#include <lockstep/core/trace/matched_collectives.h>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Collectives = std::map<std::string, MatchedCollective>;

constexpr const char* kArrival = "arrival";

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

double microseconds(Clock::time_point time) { return microseconds(time.time_since_epoch()); }

Json name_event(const char* what, int rank, std::size_t track, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}};
}

// Writes the events of one rank.
class RankEvents {
 public:
  RankEvents(const RankTrace& rank, const Collectives& collectives, Json& events)
      : rank_(rank), collectives_(collectives), events_(events) {}

  void add_all() {
    const std::string host = rank_.host.empty() ? "" : str(" on ", rank_.host);
    events_.push_back(name_event("process_name", rank_.rank, 0, str("rank ", rank_.rank, host)));
    for (const Span& span : rank_.spans) {
      const auto found = collectives_.find(span.collective);
      const auto value = span.arguments.find("value");
      if (span.category == kValueCategory && value != span.arguments.end()) {
        add_value(span, value->second);
      } else if (found == collectives_.end()) {
        add(span.name, span.category, begin_of(span), end_of(span), span);
      } else {
        add_collective(span, found->second);
      }
    }
  }

 private:
  Clock::time_point begin_of(const Span& span) const { return on_rank_0(span.begin, rank_.clock); }
  Clock::time_point end_of(const Span& span) const { return on_rank_0(span.end, rank_.clock); }

  std::size_t track_of(const Span& span) {
    const auto [track, is_new] = tracks_.try_emplace(span.track, tracks_.size());
    if (is_new) {
      events_.push_back(name_event("thread_name", rank_.rank, track->second, span.track));
    }
    return track->second;
  }

  void add(const std::string& name, const std::string& category, Clock::time_point begin,
           Clock::time_point end, const Span& span) {
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", category},
                       {"pid", rank_.rank},
                       {"tid", track_of(span)},
                       {"ts", microseconds(begin)},
                       {"dur", microseconds(end - begin)},
                       {"args", span.arguments}});
  }

  // Viewers draw the values of one name and process as one curve.
  void add_value(const Span& span, const std::string& value) {
    events_.push_back({{"ph", "C"},
                       {"name", span.name},
                       {"cat", span.category},
                       {"pid", rank_.rank},
                       {"tid", track_of(span)},
                       {"ts", microseconds(begin_of(span))},
                       {"args", {{span.name, std::stoll(value)}}}});
  }

  // Clocks are only known up to their uncertainty, so the last rank may appear to begin after the
  // end.
  void add_collective(const Span& span, const MatchedCollective& collective) {
    const Clock::time_point begin = begin_of(span);
    const Clock::time_point end = end_of(span);
    const Clock::time_point last = std::clamp(collective.last_begin, begin, end);
    if (last > begin) {
      add(str(span.name, ": waits for rank ", collective.last_rank), kArrival, begin, last, span);
    }
    add(span.name, span.category, last, end, span);
    const bool is_last = rank_.rank == collective.last_rank;
    Json flow{{"ph", is_last ? "s" : "f"}, {"name", span.name}, {"cat", "collective"},
              {"id", collective.number},   {"pid", rank_.rank}, {"tid", track_of(span)},
              {"ts", microseconds(last)}};
    if (!is_last) flow["bp"] = "e";  // bind the flow's end to the enclosing span
    events_.push_back(std::move(flow));
  }

  const RankTrace& rank_;
  const Collectives& collectives_;
  Json& events_;
  std::map<std::string, std::size_t> tracks_;
};

Json clock_json(const RankTrace& rank) {
  constexpr double kMicro = 1e-3;
  return {{"rank", rank.rank},
          {"host", rank.host},
          {"offset_us", kMicro * static_cast<double>(rank.clock.nanoseconds)},
          {"uncertainty_us", kMicro * static_cast<double>(rank.clock.uncertainty_nanoseconds)}};
}

}  // namespace

void write_chrome_trace(const std::filesystem::path& path, const std::vector<RankTrace>& ranks) {
  const Collectives collectives = match_collectives(ranks);
  Json events = Json::array();
  Json clocks = Json::array();
  for (const RankTrace& rank : ranks) {
    RankEvents(rank, collectives, events).add_all();
    clocks.push_back(clock_json(rank));
  }
  write_file_atomically(path, json_text(Json{{"displayTimeUnit", "ms"},
                                             {"otherData", {{"clocks", std::move(clocks)}}},
                                             {"traceEvents", std::move(events)}}));
}

}  // namespace lockstep
