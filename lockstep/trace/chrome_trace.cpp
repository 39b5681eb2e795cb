#include <lockstep/trace/chrome_trace.h>

#include <nlohmann/json.hpp>

#include <lockstep/core/file.h>
#include <lockstep/core/strings.h>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

Json name_event(const char* what, int rank, std::size_t track, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}};
}

}  // namespace

std::string chrome_events(int rank, const std::vector<Span>& spans) {
  Json events = Json::array();
  events.push_back(name_event("process_name", rank, 0, str("rank ", rank)));
  std::map<std::string, std::size_t> tracks;
  for (const Span& span : spans) {
    const auto [track, is_new] = tracks.try_emplace(span.track, tracks.size());
    if (is_new) events.push_back(name_event("thread_name", rank, track->second, span.track));
    events.push_back({{"ph", "X"},
                      {"name", span.name},
                      {"cat", span.category},
                      {"pid", rank},
                      {"tid", track->second},
                      {"ts", microseconds(span.begin.time_since_epoch())},
                      {"dur", microseconds(span.end - span.begin)},
                      {"args", span.arguments}});
  }
  return events.dump();
}

void write_chrome_trace(const std::filesystem::path& path, const std::vector<std::string>& events) {
  Json all = Json::array();
  for (const std::string& text : events) {
    for (auto& event : Json::parse(text)) all.push_back(std::move(event));
  }
  write_file_atomically(path, Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(all)}}.dump());
}

}  // namespace lockstep
