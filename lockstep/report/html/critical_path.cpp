#include <lockstep/report/html/critical_path.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include <lockstep/core/strings.h>

namespace lockstep::html {
namespace {

constexpr double kNear = 1;  // maximum microseconds between two adjacent spans
constexpr const char* kTransfer = "transfer";
constexpr const char* kMessage = "message";
using PathSpans = std::vector<const TracedSpan*>;

// An action of a pipeline's worker: its name begins with the stage. An empty name, whose first
// character is a null character, is none.
bool is_action(const TracedSpan& span) {
  const bool has_category =
      span.category == "forward" || span.category == "backward" || span.category == kMessage;
  return has_category && span.name[0] >= '0' && span.name[0] <= '9';
}

// A computing phase may contain collectives that it does not wait for.
bool may_wait(const TracedSpan& phase) {
  return phase.name != "forward" && phase.name != "backward";
}

// The one in progress just before `time`.
const TracedSpan* span_at(const PathSpans& spans, double time) {
  for (const TracedSpan* span : spans) {
    if (span->begin < time - kNear && time <= span->end + kNear) return span;
  }
  return nullptr;
}

// The last one that ended before `time`; nothing before `begin`.
const TracedSpan* last_before(const PathSpans& spans, double time, double begin) {
  const TracedSpan* last = nullptr;
  for (const TracedSpan* span : spans) {
    if (span->end > time - kNear || span->end <= begin) continue;
    if (last == nullptr || span->end > last->end) last = span;
  }
  return last;
}

// The name of the message that "1RECV_F3" waits for: "0SEND_F3". Activations come from the previous
// stage, gradients from the next one.
std::optional<std::string> sent_for(const std::string& name) {
  constexpr std::string_view kReceive = "RECV_";
  const auto at = name.find(kReceive);
  if (at == std::string::npos || at + kReceive.size() >= name.size()) return std::nullopt;
  int stage = 0;
  if (std::from_chars(name.data(), name.data() + at, stage).ptr != name.data() + at) {
    return std::nullopt;
  }
  const bool is_forward = name[at + kReceive.size()] == 'F';
  return str(is_forward ? stage - 1 : stage + 1, "SEND_", name.substr(at + kReceive.size()));
}

// The spans of one rank in a step.
struct RankStep {
  explicit RankStep(const StepWindow& own) : window(own) {}

  // The spans of the rank have to be added by beginning.
  void add(const TracedSpan& span) {
    if (span.end <= window.begin || span.begin >= window.end) return;
    if (span.name == "exposed communication") exposed.push_back(&span);
    if (span.category == "phase" && span.track == "training") phases.push_back(&span);
    if (span.last_rank) transfers.push_back(&span);
    if (is_action(span)) actions.push_back(&span);
  }

  // The transfer that ended a wait until `time`: the last one. It may have begun before the wait.
  const TracedSpan* transfer_before(double time) const {
    const TracedSpan* last = nullptr;
    for (const TracedSpan* span : transfers) {
      if (span->end > time + kNear) continue;
      if (last == nullptr || span->end > last->end) last = span;
    }
    return last;
  }
  // Where the work before `time` began: at `begin`, or at the end of the last wait since then.
  double work_since(double begin, double time) const {
    for (const TracedSpan* span : exposed) {
      if (span->end < time - kNear) begin = std::max(begin, span->end);
    }
    return std::max(begin, window.begin);
  }

  StepWindow window;
  PathSpans exposed{}, phases{}, transfers{}, actions{};
};

// Traces the path backwards through a step.
class PathWalk {
 public:
  PathWalk(const TracedRun& run, const TracedStep& step) {
    for (const auto& [rank, window] : step.ranks) {
      ranks_.try_emplace(rank, window);
      if (ranks_.size() == 1 || window.end > time_) {
        rank_ = rank;
        time_ = window.end;
      }
    }
    for (const TracedSpan& span : run.spans) {
      const auto rank = ranks_.find(span.rank);
      if (rank != ranks_.end()) rank->second.add(span);
    }
    most_ = 4 * run.spans.size() + 100;
  }

  std::vector<PathPart> parts() {
    // Each iteration removes a span or moves to another rank; the limit guards against endless
    // loops on damaged times.
    for (std::size_t turn = 0; turn < most_ && time_ > current().window.begin + kNear; ++turn) {
      if (const TracedSpan* const wait = span_at(current().exposed, time_)) {
        leave_wait(*wait);
      } else if (!track_.empty()) {
        go_back_on_worker();
      } else {
        go_back_on_training_thread();
      }
    }
    std::ranges::reverse(parts_);
    return std::move(parts_);
  }

 private:
  const RankStep& current() const { return ranks_.at(rank_); }

  void add(const std::string& what, double begin) {
    if (begin >= time_) return;
    PathPart* const behind = parts_.empty() ? nullptr : &parts_.back();
    if (behind != nullptr && behind->rank == rank_ && behind->what == what) {
      behind->begin = begin;
    } else {
      parts_.push_back({.rank = rank_, .what = what, .begin = begin, .end = time_});
    }
    time_ = begin;
  }

  void go_back_on_training_thread() {
    const RankStep& here = current();
    if (const TracedSpan* const phase = span_at(here.phases, time_)) return leave_phase(*phase);
    double end = here.window.begin;
    for (const PathSpans& spans : {here.phases, here.exposed}) {
      if (const TracedSpan* const last = last_before(spans, time_, end)) end = last->end;
    }
    const TracedSpan* action = span_at(here.actions, time_);
    if (action == nullptr) action = last_before(here.actions, time_, end);
    if (action == nullptr) return add(kBetweenPhases, end);
    add(kBetweenPhases, std::min(action->end, time_));
    track_ = action->track;
  }

  // A phase may contain collectives, such as the broadcast of buffers: the last one is handled like
  // a wait.
  void leave_phase(const TracedSpan& phase) {
    const double begin = current().work_since(phase.begin, time_);
    const TracedSpan* const transfer = may_wait(phase) ? current().transfer_before(time_) : nullptr;
    if (transfer == nullptr || transfer->begin <= begin || *transfer->last_rank == rank_) {
      return add(phase.name, begin);
    }
    add(phase.name, transfer->end);
    leave_transfer(*transfer);
  }

  // A wait for a reduction: the path takes its transfer and continues at the rank that came last.
  void leave_wait(const TracedSpan& wait) {
    const TracedSpan* const transfer = current().transfer_before(time_);
    if (transfer == nullptr || transfer->begin <= wait.begin) return add(kTransfer, wait.begin);
    leave_transfer(*transfer);
  }

  void leave_transfer(const TracedSpan& transfer) {
    add(kTransfer, std::min(transfer.begin, time_ - kNear));
    if (*transfer.last_rank == rank_ || !ranks_.contains(*transfer.last_rank)) return;
    rank_ = *transfer.last_rank;
    track_.clear();
  }

  // The actions of one worker follow each other. Before its first one, the path continues in the
  // training thread.
  void go_back_on_worker() {
    PathSpans own;
    for (const TracedSpan* span : current().actions) {
      if (span->track == track_) own.push_back(span);
    }
    if (const TracedSpan* const action = span_at(own, time_)) return leave_action(*action);
    const TracedSpan* last = last_before(own, time_, current().window.begin);
    if (last == nullptr) return track_.clear();
    const TracedSpan* const wait = last_before(current().exposed, time_, last->end);
    add(kBetweenPhases, wait == nullptr ? last->end : wait->end);
  }

  void leave_action(const TracedSpan& action) {
    const std::optional<std::string> sent = sent_for(action.name);
    const auto [sender, span] = sent ? sender_of(*sent, time_) : std::pair(rank_, nullptr);
    if (span == nullptr || span->end <= action.begin) {
      return add(action.category, std::max(action.begin, current().window.begin));
    }
    add(kMessage, std::min(span->end, time_ - kNear));
    rank_ = sender;
    track_ = span->track;
  }

  // Parallel pipelines use equal message names: the sender is the nearest rank.
  std::pair<int, const TracedSpan*> sender_of(const std::string& name, double time) const {
    std::pair<int, const TracedSpan*> nearest{rank_, nullptr};
    for (const auto& [rank, step] : ranks_) {
      for (const TracedSpan* span : step.actions) {
        if (span->name != name || span->end > time + kNear) continue;
        if (nearest.second == nullptr || std::abs(rank - rank_) < std::abs(nearest.first - rank_)) {
          nearest = {rank, span};
        }
      }
    }
    return nearest;
  }

  std::map<int, RankStep> ranks_{};
  std::vector<PathPart> parts_{};
  std::size_t most_ = 0;
  int rank_ = 0;
  double time_ = 0;
  std::string track_{};  // track of a worker; empty: the training thread
};

}  // namespace

std::vector<PathPart> critical_path(const TracedRun& run, const TracedStep& step) {
  return PathWalk(run, step).parts();
}

std::vector<std::pair<std::string, double>> path_shares(const std::vector<PathPart>& path) {
  std::vector<std::pair<std::string, double>> shares;
  for (const PathPart& part : path) {
    const auto found = std::ranges::find(shares, part.what, &std::pair<std::string, double>::first);
    if (found == shares.end()) {
      shares.emplace_back(part.what, part.end - part.begin);
    } else {
      found->second += part.end - part.begin;
    }
  }
  return shares;
}

double accounted_share(const std::vector<PathPart>& path, const TracedStep& step) {
  if (path.empty()) return 0;
  const double whole = whole_window(step).end - step.ranks.at(path.front().rank).begin;
  double named = 0;
  for (const PathPart& part : path) {
    if (part.what != kBetweenPhases) named += part.end - part.begin;
  }
  return whole > 0 ? named / whole : 0;
}

}  // namespace lockstep::html
