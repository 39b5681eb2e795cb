#include <lockstep/comm/algorithms/cost_model.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

// One transfer. A ready time is -1 until that side has reached the transfer.
struct Transfer {
  int source;
  int destination;
  std::size_t bytes;
  double sender_ready = -1;
  double receiver_ready = -1;
  std::size_t place = 0;  // position among the sender's transfers of the step

  bool ready() const { return sender_ready >= 0 && receiver_ready >= 0; }
};

struct RankState {
  std::size_t step = 0;
  std::size_t open_transfers = 0;
  double step_end = 0;  // maximum over the finished transfers
  double send_free = 0;
  double receive_free = 0;
};

class Prediction {
 public:
  Prediction(const std::vector<CommSchedule>& schedules, std::size_t element_bytes,
             const CostModel& model)
      : schedules_(schedules),
        element_bytes_(element_bytes),
        model_(model),
        ranks_(schedules.size()) {}

  std::vector<double> run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) enter_steps(rank);
    while (!transfers_.empty()) perform(next_transfer());
    std::vector<double> seconds;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      LOCKSTEP_CHECK(ranks_[rank].step == schedules_[rank].size(), "rank ", rank,
                     " is stuck in step ", ranks_[rank].step);
      seconds.push_back(ranks_[rank].step_end);
    }
    return seconds;
  }

 private:
  // Step, source, destination and first element, which together identify a transfer.
  using Key = std::tuple<std::size_t, int, int, std::size_t>;

  Transfer& transfer(std::size_t step, int source, int destination, ScheduledRange range) {
    auto& found = transfers_[{step, source, destination, range.first}];
    found.source = source;
    found.destination = destination;
    found.bytes = range.count * element_bytes_;
    return found;
  }

  // Registers the transfers that the rank now waits for; empty steps take no time.
  void enter_steps(std::size_t index) {
    RankState& state = ranks_[index];
    const CommSchedule& schedule = schedules_[index];
    while (state.step < schedule.size() && schedule[state.step].empty()) ++state.step;
    if (state.step == schedule.size()) return;
    const ScheduleStep& step = schedule[state.step];
    const int rank = static_cast<int>(index);
    for (std::size_t i = 0; i < step.sends.size(); ++i) {
      Transfer& sent = transfer(state.step, rank, step.sends[i].peer, step.sends[i].range);
      sent.sender_ready = state.step_end;
      sent.place = i;
    }
    for (const ScheduledReceive& receive : step.receives) {
      transfer(state.step, receive.peer, rank, receive.range).receiver_ready = state.step_end;
    }
    state.open_transfers = step.sends.size() + step.receives.size();
  }

  double begin_of(const Transfer& transfer) const {
    return std::max({transfer.sender_ready, transfer.receiver_ready,
                     ranks_[static_cast<std::size_t>(transfer.source)].send_free,
                     ranks_[static_cast<std::size_t>(transfer.destination)].receive_free});
  }

  std::map<Key, Transfer>::iterator next_transfer() {
    auto best = transfers_.end();
    std::pair<double, std::size_t> best_order{std::numeric_limits<double>::infinity(), 0};
    for (auto each = transfers_.begin(); each != transfers_.end(); ++each) {
      if (!each->second.ready()) continue;
      const std::pair<double, std::size_t> order{begin_of(each->second), each->second.place};
      if (best == transfers_.end() || order < best_order) {
        best = each;
        best_order = order;
      }
    }
    LOCKSTEP_CHECK(best != transfers_.end(), transfers_.size(), " transfers wait for each other");
    return best;
  }

  void perform(std::map<Key, Transfer>::iterator chosen) {
    const Transfer done = chosen->second;
    transfers_.erase(chosen);
    const double end = begin_of(done) + model_.alpha_seconds +
                       static_cast<double>(done.bytes) * model_.beta_seconds_per_byte;
    ranks_[static_cast<std::size_t>(done.source)].send_free = end;
    ranks_[static_cast<std::size_t>(done.destination)].receive_free = end;
    leave(static_cast<std::size_t>(done.source), end);
    leave(static_cast<std::size_t>(done.destination), end);
  }

  void leave(std::size_t rank, double end) {
    RankState& state = ranks_[rank];
    state.step_end = std::max(state.step_end, end);
    if (--state.open_transfers > 0) return;
    for (const ScheduledReceive& receive : schedules_[rank][state.step].receives) {
      if (receive.then != OnArrival::kReduce) continue;
      state.step_end +=
          static_cast<double>(receive.range.count * element_bytes_) * model_.gamma_seconds_per_byte;
    }
    ++state.step;
    enter_steps(rank);
  }

  const std::vector<CommSchedule>& schedules_;
  const std::size_t element_bytes_;
  const CostModel model_;
  std::vector<RankState> ranks_;
  std::map<Key, Transfer> transfers_;
};

}  // namespace

std::vector<double> predict_seconds(const std::vector<CommSchedule>& schedules,
                                    std::size_t element_bytes, const CostModel& model) {
  return Prediction(schedules, element_bytes, model).run();
}

}  // namespace lockstep::comm
