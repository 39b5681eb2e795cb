// Executes the schedules of all ranks in one thread and checks them strictly.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/comm/algorithms/schedule.h>
#include <lockstep/core/strings.h>

namespace lockstep::testing_support {

/// Throws std::runtime_error with the rank and step if schedules deadlock, leave a message
/// unmatched, match messages of different sizes or steps, write where they read in the same step,
/// or leave the tensor's bounds.
template <class Value>
class ScheduleSimulator {
 public:
  using Data = std::vector<Value>;
  using Combine = std::function<Value(Value, Value)>;

  ScheduleSimulator(std::vector<comm::CommSchedule> schedules, std::vector<Data> data,
                    Combine combine)
      : schedules_(std::move(schedules)), data_(std::move(data)), combine_(std::move(combine)) {}

  std::vector<Data> run() {
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      check_steps(rank);
      ranks_.push_back({});
    }
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) enter(rank);
    // A rank continues when all transfers of its step are complete. If no rank can continue, they
    // are deadlocked.
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < schedules_.size(); ++rank) moved = advance(rank) || moved;
    }
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      if (ranks_[rank].step < schedules_[rank].size()) fail(rank, "deadlock");
    }
    return data_;
  }

 private:
  struct Message {
    std::size_t step;
    comm::ScheduledRange range;
    const Value* from;  // read when the receiver arrives (rendezvous)
    bool* taken;
  };
  struct RankState {
    std::size_t step = 0;
    std::deque<bool> sent;  // stable addresses
    std::vector<std::pair<comm::ScheduledReceive, Data>> arrived;
    std::vector<bool> received;
  };

  [[noreturn]] void fail(std::size_t rank, const std::string& what) const {
    throw std::runtime_error(
        str("rank ", rank, ", step ", ranks_.empty() ? 0 : ranks_[rank].step, ": ", what));
  }

  static bool overlap(const comm::ScheduledRange& a, const comm::ScheduledRange& b) {
    return a.first < b.end() && b.first < a.end();
  }

  void check_steps(std::size_t rank) const {
    const auto require = [&](bool fine, const char* what) {
      if (!fine) throw std::runtime_error(str("rank ", rank, ": ", what));
    };
    const auto size = static_cast<int>(schedules_.size());
    require(schedules_[rank].size() == schedules_[0].size(), "another number of steps");
    for (const comm::ScheduleStep& step : schedules_[rank]) {
      for (const comm::ScheduledSend& send : step.sends) {
        require(send.peer >= 0 && send.peer < size && send.peer != static_cast<int>(rank),
                "bad peer");
        require(send.range.count > 0 && send.range.end() <= data_[rank].size(), "bad range");
      }
      // A step can have hundreds of receives, most of which reduce into the range of another one.
      std::vector<const comm::ScheduledReceive*> distinct;
      for (const comm::ScheduledReceive& receive : step.receives) {
        require(receive.range.count > 0 && receive.range.end() <= data_[rank].size(), "bad range");
        const bool reduces = receive.then == comm::OnArrival::kReduce;
        bool is_distinct = true;
        for (const comm::ScheduledReceive* other : distinct) {
          const bool same =
              receive.range == other->range && reduces && other->then == comm::OnArrival::kReduce;
          require(same || !overlap(receive.range, other->range), "overlapping arrivals");
          if (same) is_distinct = false;
        }
        if (is_distinct) distinct.push_back(&receive);
        if (reduces) continue;
        for (const comm::ScheduledSend& send : step.sends) {
          require(!overlap(receive.range, send.range), "overwrites what it sends");
        }
      }
    }
  }

  void enter(std::size_t rank) {
    RankState& state = ranks_[rank];
    state.sent.clear();
    state.arrived.clear();
    state.received.clear();
    if (state.step == schedules_[rank].size()) return;
    const comm::ScheduleStep& step = schedules_[rank][state.step];
    for (const comm::ScheduledSend& send : step.sends) {
      state.sent.push_back(false);
      messages_[{static_cast<int>(rank), send.peer}].push_back(
          {state.step, send.range, data_[rank].data() + send.range.first, &state.sent.back()});
    }
    state.received.resize(step.receives.size());
  }

  // Messages of a pair are received in the order in which they were sent.
  bool receive(std::size_t rank) {
    RankState& state = ranks_[rank];
    const comm::ScheduleStep& step = schedules_[rank][state.step];
    bool moved = false;
    for (std::size_t i = 0; i < step.receives.size(); ++i) {
      const comm::ScheduledReceive& receive = step.receives[i];
      auto& queue = messages_[{receive.peer, static_cast<int>(rank)}];
      if (state.received[i] || queue.empty()) continue;
      const Message& message = queue.front();
      if (message.step != state.step) fail(rank, str("got a message of step ", message.step));
      if (!(message.range == receive.range)) fail(rank, "got other elements than expected");
      state.arrived.emplace_back(receive, Data(message.from, message.from + message.range.count));
      *message.taken = true;
      queue.pop_front();
      state.received[i] = moved = true;
    }
    return moved;
  }

  bool advance(std::size_t rank) {
    RankState& state = ranks_[rank];
    if (state.step == schedules_[rank].size()) return false;
    const bool moved = receive(rank);
    const auto all = [](const auto& flags) {
      return std::all_of(flags.begin(), flags.end(), [](bool f) { return f; });
    };
    if (!all(state.sent) || !all(state.received)) return moved;
    apply(rank);
    ++state.step;
    enter(rank);
    return true;
  }

  // Combines in rank order, with this rank's own elements at its position.
  void apply(std::size_t rank) {
    auto& arrived = ranks_[rank].arrived;
    std::stable_sort(arrived.begin(), arrived.end(),
                     [](const auto& a, const auto& b) { return a.first.peer < b.first.peer; });
    std::vector<std::size_t> offsets_done;
    for (const auto& [receive, values] : arrived) {
      Value* const own = data_[rank].data() + receive.range.first;
      if (receive.then == comm::OnArrival::kOverwrite) {
        std::copy(values.begin(), values.end(), own);
        continue;
      }
      if (std::count(offsets_done.begin(), offsets_done.end(), receive.range.first)) continue;
      offsets_done.push_back(receive.range.first);
      combine_range(rank, receive.range, own);
    }
  }

  void combine_range(std::size_t rank, const comm::ScheduledRange& range, Value* own) {
    std::vector<std::pair<int, const Value*>> sources{{static_cast<int>(rank), own}};
    for (const auto& [receive, values] : ranks_[rank].arrived) {
      if (receive.range == range) sources.emplace_back(receive.peer, values.data());
    }
    std::sort(sources.begin(), sources.end());
    for (std::size_t i = 0; i < range.count; ++i) {
      Value value = sources[0].second[i];
      for (std::size_t s = 1; s < sources.size(); ++s)
        value = combine_(value, sources[s].second[i]);
      own[i] = value;
    }
  }

  const std::vector<comm::CommSchedule> schedules_;
  std::vector<Data> data_;
  const Combine combine_;
  std::vector<RankState> ranks_;
  std::map<std::pair<int, int>, std::deque<Message>> messages_;
};

}  // namespace lockstep::testing_support
