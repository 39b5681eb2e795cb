#include <lockstep/comm/algorithms/trace.h>

#include <sstream>

#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

thread_local Trace* current_trace = nullptr;

}  // namespace

std::string to_text(const Trace& trace) {
  std::ostringstream out;
  out << trace.start_ns << ' ' << trace.end_ns << ' ' << trace.events.size() << '\n';
  for (const TraceEvent& event : trace.events) {
    out << static_cast<int>(event.kind) << ' ' << event.step << ' ' << event.peer << ' '
        << event.range.first << ' ' << event.range.count << ' ' << event.bytes << ' '
        << event.start_ns << ' ' << event.end_ns << '\n';
  }
  return out.str();
}

Trace trace_from_text(const std::string& text) {
  std::istringstream in(text);
  Trace trace;
  std::size_t count = 0;
  in >> trace.start_ns >> trace.end_ns >> count;
  for (std::size_t i = 0; i < count && in; ++i) {
    TraceEvent event;
    int kind = 0;
    in >> kind >> event.step >> event.peer >> event.range.first >> event.range.count >>
        event.bytes >> event.start_ns >> event.end_ns;
    event.kind = static_cast<TraceEvent::Kind>(kind);
    trace.events.push_back(event);
  }
  LOCKSTEP_CHECK(!in.fail(), "a trace of ", text.size(), " bytes ends early");
  return trace;
}

TraceScope::TraceScope(Trace& trace) : before_(current_trace) { current_trace = &trace; }
TraceScope::~TraceScope() { current_trace = before_; }
Trace* TraceScope::current() { return current_trace; }

}  // namespace lockstep::comm
