#include <lockstep/comm/algorithms/halving_doubling.h>

#include <bit>

namespace lockstep::comm {
namespace {

// The ranks that take part in the exchanges, numbered 0 to P-1: first the odd rank of each folded
// pair, then all ranks without a partner.
struct Fold {
  explicit Fold(int size)
      : active(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))),
        pairs(size - active) {}

  bool stands_by(int rank) const { return rank < 2 * pairs && rank % 2 == 0; }
  bool has_partner(int rank) const { return rank < 2 * pairs; }
  int number_of(int rank) const { return rank < 2 * pairs ? rank / 2 : rank - pairs; }
  int rank_of(int number) const { return number < pairs ? 2 * number + 1 : number + pairs; }

  int active;
  int pairs;
};

// Parts [first, first + count) of the P parts.
struct Parts {
  int first;
  int count;
};

ScheduledRange elements_of(const Parts& parts, std::size_t count, int active) {
  const std::size_t first = part_of(count, active, parts.first).first;
  return {first, part_of(count, active, parts.first + parts.count - 1).end() - first};
}

// Before each exchange, both partners work on the same parts.
void add_exchanges(CommSchedule& schedule, const ScheduleRequest& request, const Fold& fold) {
  const int number = fold.number_of(request.rank);
  const auto elements = [&](Parts parts) { return elements_of(parts, request.count, fold.active); };
  struct Exchange {
    int peer;
    Parts kept, given;
  };
  std::vector<Exchange> exchanges;
  Parts parts{0, fold.active};
  for (int bit = 1; bit < fold.active; bit *= 2) {
    const int half = parts.count / 2;
    const Parts lower{parts.first, half}, upper{parts.first + half, half};
    const bool keeps_lower = (number & bit) == 0;
    exchanges.push_back(
        {fold.rank_of(number ^ bit), keeps_lower ? lower : upper, keeps_lower ? upper : lower});
    parts = exchanges.back().kept;
  }
  for (const Exchange& exchange : exchanges) {
    ScheduleStep step;
    add_send(step, exchange.peer, elements(exchange.given));
    add_receive(step, exchange.peer, elements(exchange.kept), OnArrival::kReduce);
    schedule.push_back(std::move(step));
  }
  for (auto exchange = exchanges.rbegin(); exchange != exchanges.rend(); ++exchange) {
    ScheduleStep step;
    add_send(step, exchange->peer, elements(exchange->kept));
    add_receive(step, exchange->peer, elements(exchange->given), OnArrival::kOverwrite);
    schedule.push_back(std::move(step));
  }
}

}  // namespace

CommSchedule halving_doubling_schedule(const ScheduleRequest& request) {
  const Fold fold(request.size);
  const ScheduledRange all{0, request.count};
  const bool folds = fold.has_partner(request.rank);
  const bool stands_by = fold.stands_by(request.rank);
  CommSchedule schedule;
  if (fold.pairs > 0) {
    ScheduleStep step;
    if (stands_by) add_send(step, request.rank + 1, all);
    if (folds && !stands_by) add_receive(step, request.rank - 1, all, OnArrival::kReduce);
    schedule.push_back(std::move(step));
  }
  if (stands_by) {
    const auto exchanges = 2 * std::bit_width(static_cast<unsigned>(fold.active) - 1U);
    schedule.resize(schedule.size() + static_cast<std::size_t>(exchanges));
  } else {
    add_exchanges(schedule, request, fold);
  }
  if (fold.pairs > 0) {
    ScheduleStep step;
    if (stands_by) add_receive(step, request.rank + 1, all, OnArrival::kOverwrite);
    if (folds && !stands_by) add_send(step, request.rank - 1, all);
    schedule.push_back(std::move(step));
  }
  return schedule;
}

}  // namespace lockstep::comm
