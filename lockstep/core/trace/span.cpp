#include <lockstep/core/trace/span.h>

#include <nlohmann/json.hpp>

#include <lockstep/core/encoding/json_text.h>
#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>

namespace lockstep {
namespace {

using SpanJson = nlohmann::json;

std::int64_t nanoseconds_of(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

Clock::time_point time_of(std::int64_t nanoseconds) {
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(nanoseconds)));
}

}  // namespace

std::string to_text(const RankTrace& trace) {
  SpanJson spans = SpanJson::array();
  for (const Span& span : trace.spans) {
    spans.push_back({span.name, span.category, nanoseconds_of(span.begin), nanoseconds_of(span.end),
                     span.track, span.arguments, span.collective});
  }
  return json_text(SpanJson{{"rank", trace.rank},
                            {"host", trace.host},
                            {"offset", trace.clock.nanoseconds},
                            {"uncertainty", trace.clock.uncertainty_nanoseconds},
                            {"spans", std::move(spans)}});
}

RankTrace rank_trace_from(const std::string& text) {
  try {
    const SpanJson json = SpanJson::parse(text);
    RankTrace trace{
        .rank = json.at("rank").get<int>(),
        .host = json.at("host").get<std::string>(),
        .clock = {.nanoseconds = json.at("offset").get<std::int64_t>(),
                  .uncertainty_nanoseconds = json.at("uncertainty").get<std::int64_t>()},
        .spans = {}};
    for (const SpanJson& span : json.at("spans")) {
      trace.spans.push_back({.name = span.at(0).get<std::string>(),
                             .category = span.at(1).get<std::string>(),
                             .begin = time_of(span.at(2).get<std::int64_t>()),
                             .end = time_of(span.at(3).get<std::int64_t>()),
                             .track = span.at(4).get<std::string>(),
                             .arguments = span.at(5).get<std::map<std::string, std::string>>(),
                             .collective = span.at(6).get<std::string>()});
    }
    return trace;
  } catch (const SpanJson::exception& error) {
    throw DataError(str("these are not the spans of a rank: ", json_problem(error)));
  }
}

}  // namespace lockstep
