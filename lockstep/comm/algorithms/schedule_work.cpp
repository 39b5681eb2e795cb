#include <lockstep/comm/algorithms/schedule_work.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include <lockstep/comm/algorithms/combine.h>
#include <lockstep/comm/algorithms/schedule.h>
#include <lockstep/comm/call/description.h>
#include <lockstep/comm/call/message_tag.h>
#include <lockstep/comm/call/outcome.h>
#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

torch::Tensor piece(const torch::Tensor& flat, ScheduledRange range) {
  return flat.narrow(0, static_cast<std::int64_t>(range.first),
                     static_cast<std::int64_t>(range.count));
}

// How values are combined during an operation so that each result is rounded once.
struct Arithmetic {
  bool widen = false;  ///< send and add 16-bit floats as float32
  ReduceOp op;         ///< combines two values
  double before = 1;   ///< factor applied to each rank's input
  double after = 1;    ///< factor applied to the result
};

Arithmetic arithmetic_of(Algorithm algorithm, const torch::Tensor& flat, int size, ReduceOp op) {
  // If every rank receives all values at once, reduce() handles the whole operation.
  if (algorithm == Algorithm::kAllToAll && size > 1 && flat.is_cpu()) return {.op = op};
  Arithmetic arithmetic{.op = op};
  if (op.kind == ReduceOp::Kind::kAverage) arithmetic.after = 1.0 / size;
  if (op.kind == ReduceOp::Kind::kPreMultipliedSum) arithmetic.before = op.factor;
  if (op.kind == ReduceOp::Kind::kAverage || op.kind == ReduceOp::Kind::kPreMultipliedSum) {
    arithmetic.op = ReduceOp::kSum;
  }
  arithmetic.widen = flat.scalar_type() == torch::kHalf || flat.scalar_type() == torch::kBFloat16;
  return arithmetic;
}

class ScheduleWork final : public Work,
                           public Progressing,
                           public std::enable_shared_from_this<ScheduleWork> {
 public:
  ScheduleWork(Algorithm algorithm, std::shared_ptr<Backend> backend, int rank, int size,
               std::uint64_t operation, torch::Tensor flat, ReduceOp op, Trace* trace)
      : algorithm_(algorithm),
        rank_(rank),
        operation_(operation),
        flat_(std::move(flat)),
        op_(op),
        tag_(MessageTag::of_collective(operation, fingerprint(describe(description())))),
        arithmetic_(arithmetic_of(algorithm, flat_, size, op)),
        backend_(std::move(backend)),
        watchdog_(backend_->watchdog()),
        trace_(trace) {
    working_ = arithmetic_.widen ? flat_.to(torch::kFloat32) : flat_;
    if (arithmetic_.before != 1) scale_tensor(working_, arithmetic_.before);
    const auto count = static_cast<std::size_t>(flat_.numel());
    const std::size_t chunk =
        default_chunk(algorithm, backend_->traits(), size, working_.element_size());
    schedule_ =
        make_schedule(algorithm, {.rank = rank, .size = size, .count = count, .chunk = chunk});
    scratch_ = torch::empty({scratch_elements()}, working_.options());
    if (trace_ != nullptr) *trace_ = {.start_ns = now_ns(), .end_ns = 0, .events = {}};
  }

  /// Begins the first step. From here on the object keeps itself alive.
  void start() {
    self_ = shared_from_this();
    if (watchdog_ != nullptr) ticket_ = watchdog_->started(description(), operation_);
    const Turn turn(*this);
    guarded([&] { begin_step(); });
  }

  // Waits for one transfer after another and does not poll for completion, because Gloo needs a
  // thread to find out whether a transfer is complete.
  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    const Waiting waiting(*this);
    std::optional<Deadline> deadline;
    if (timeout) deadline.emplace(*timeout);
    while (!outcome_.has_ended()) {
      const std::shared_ptr<Work> transfer = next_to_wait_for();
      if (transfer == nullptr) continue;
      std::optional<std::chrono::milliseconds> left;
      if (deadline) left = std::chrono::ceil<std::chrono::milliseconds>(deadline->remaining());
      wait_for(transfer, left);
    }
    outcome_.rethrow();
  }

  bool is_completed() override {
    advance();
    return outcome_.has_ended();
  }

  std::exception_ptr error() const override { return outcome_.error(); }

  // May also be called from within a transfer's own progress, on the same thread; then it is a
  // no-op.
  bool advance() noexcept override {
    if (outcome_.has_ended()) return false;
    const Turn turn(*this);
    return turn && move();
  }

  bool needs_a_hand() override {
    return waiting_.load(std::memory_order_relaxed) == 0 && !outcome_.has_ended();
  }

 private:
  struct Transfer {
    std::shared_ptr<Work> work;
    TraceEvent event;
    bool open = true;
  };

  // The right to access the state below. It is not a lock, because a thread that does not get it
  // need not wait.
  class Turn {
   public:
    explicit Turn(ScheduleWork& work)
        : work_(work), mine_(!work.busy_.test_and_set(std::memory_order_acquire)) {}
    ~Turn() {
      if (mine_) work_.busy_.clear(std::memory_order_release);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const { return mine_; }

   private:
    ScheduleWork& work_;
    const bool mine_;
  };

  // Marks that a thread waits for the operation and therefore advances it.
  class Waiting {
   public:
    explicit Waiting(ScheduleWork& work) : work_(work) { ++work_.waiting_; }
    ~Waiting() { --work_.waiting_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    ScheduleWork& work_;
  };

  std::int64_t scratch_elements() const {
    std::size_t most = 0;
    for (const ScheduleStep& step : schedule_) {
      std::size_t elements = 0;
      for (const ScheduledReceive& receive : step.receives) {
        if (receive.then == OnArrival::kReduce) elements += receive.range.count;
      }
      most = std::max(most, elements);
    }
    return static_cast<std::int64_t>(most);
  }

  // Requires the turn. An exception becomes the operation's error.
  template <class Call>
  void guarded(Call&& call) noexcept {
    try {
      call();
    } catch (...) {
      fail(std::current_exception());
    }
  }

  // Requires the turn. Returns true if there was progress.
  bool move() noexcept {
    bool moved = false;
    guarded([&] {
      while (!outcome_.has_ended() && transfers_are_complete(moved)) {
        moved = true;
        next_step();
      }
    });
    return moved || outcome_.has_ended();
  }

  bool transfers_are_complete(bool& moved) {
    bool complete = true;
    for (Transfer& transfer : transfers_) {
      if (!transfer.open) continue;
      if (!transfer.work->is_completed()) {
        complete = false;
        continue;
      }
      if (const auto error = transfer.work->error()) std::rethrow_exception(error);
      close(transfer);
      moved = true;
    }
    return complete;
  }

  void close(Transfer& transfer) {
    transfer.open = false;
    if (trace_ == nullptr) return;
    transfer.event.end_ns = now_ns();
    trace_->events.push_back(transfer.event);
  }

  void next_step() {
    end_step();
    begin_step();
  }

  void end_step() {
    const ScheduleStep& step = schedule_[step_];
    std::vector<ScheduledRange> done;
    for (const ScheduledReceive& receive : step.receives) {
      if (receive.then == OnArrival::kOverwrite) continue;
      if (std::find(done.begin(), done.end(), receive.range) != done.end()) continue;
      done.push_back(receive.range);
      combine_arrivals(step, receive.range);
    }
    transfers_.clear();
    ++step_;
  }

  // Combines in rank order, with this rank's own elements at its position.
  void combine_arrivals(const ScheduleStep& step, ScheduledRange range) {
    const std::int64_t start = trace_ != nullptr ? now_ns() : 0;
    std::vector<std::pair<int, torch::Tensor>> sources{{rank_, piece(working_, range)}};
    for (std::size_t i = 0, offset = 0; i < step.receives.size(); ++i) {
      const ScheduledReceive& receive = step.receives[i];
      if (receive.then == OnArrival::kOverwrite) continue;
      if (receive.range == range) {
        sources.emplace_back(receive.peer, piece(scratch_, {offset, range.count}));
      }
      offset += receive.range.count;
    }
    std::sort(sources.begin(), sources.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<torch::Tensor> tensors;
    for (auto& source : sources) tensors.push_back(std::move(source.second));
    combine(tensors, piece(working_, range), arithmetic_.op);
    if (trace_ == nullptr) return;
    trace_->events.push_back({TraceEvent::Kind::kReduce, static_cast<int>(step_), -1, range,
                              (tensors.size() - 1) * range.count * working_.element_size(), start,
                              now_ns()});
  }

  void begin_step() {
    while (step_ < schedule_.size() && schedule_[step_].empty()) ++step_;
    if (step_ == schedule_.size()) return finish();
    const ScheduleStep& step = schedule_[step_];
    std::size_t offset = 0;
    // Receives first, so that incoming data finds its destination ready.
    for (const ScheduledReceive& receive : step.receives) {
      torch::Tensor place;
      if (receive.then == OnArrival::kOverwrite) {
        place = piece(working_, receive.range);
      } else {
        place = piece(scratch_, {offset, receive.range.count});
        offset += receive.range.count;
      }
      open(TraceEvent::Kind::kReceive, receive.peer, receive.range,
           [&] { return backend_->recv(std::move(place), receive.peer, tag_); });
    }
    for (const ScheduledSend& send : step.sends) {
      open(TraceEvent::Kind::kSend, send.peer, send.range,
           [&] { return backend_->send(piece(working_, send.range), send.peer, tag_); });
    }
  }

  template <class Start>
  void open(TraceEvent::Kind kind, int peer, ScheduledRange range, Start&& start) {
    TraceEvent event;
    if (trace_ != nullptr) {
      event = {kind,
               static_cast<int>(step_),
               peer,
               range,
               range.count * working_.element_size(),
               now_ns(),
               0};
    }
    transfers_.push_back({start(), event});
  }

  void finish() {
    if (arithmetic_.after != 1) scale_tensor(working_, arithmetic_.after);
    if (arithmetic_.widen) flat_.copy_(working_);
    end();
  }

  void end(std::exception_ptr error = nullptr) {
    if (trace_ != nullptr) trace_->end_ns = now_ns();
    transfers_.clear();
    working_.reset();
    scratch_.reset();
    flat_.reset();
    if (watchdog_ != nullptr) watchdog_->completed(ticket_);
    outcome_.end(std::move(error));
    self_.reset();
  }

  CallDescription description() const {
    CallDescription call;
    call.kind = CallKind::kAllReduce;
    call.type = data_type_of(flat_.scalar_type());
    call.op = op_;
    call.count = static_cast<std::uint64_t>(flat_.numel());
    call.shape = {1, {static_cast<std::uint32_t>(flat_.numel())}};
    call.algorithm = algorithm_;
    return call;
  }

  std::string where() const {
    return lockstep::str(describe(description()), ", step ", step_ + 1, " of ", schedule_.size(),
                         ": ");
  }

  // Requires the turn. Keeps the type of the error.
  void fail(std::exception_ptr error) noexcept {
    try {
      std::rethrow_exception(error);
    } catch (const TimeoutError& timeout) {
      error = std::make_exception_ptr(TimeoutError(where() + timeout.what()));
    } catch (const CommError& broken) {
      error = std::make_exception_ptr(CommError(where() + broken.what()));
    } catch (const std::exception& ours) {
      give_up(ours);
    }
    end(std::move(error));
  }

  // The failure is local rather than in a transfer, so without an abort the peers would wait for
  // this rank.
  void give_up(const std::exception& error) noexcept {
    try {
      backend_->abort(where() + first_line(error));
    } catch (const std::exception&) {
      // The peers find out at their deadline.
    }
  }

  // The next transfer to wait for. Null if the caller should try again, because a step has ended or
  // another thread is advancing the operation.
  std::shared_ptr<Work> next_to_wait_for() {
    const Turn turn(*this);
    if (!turn) {
      std::this_thread::yield();
      return nullptr;
    }
    // Waits for the sends, which are at the end, first: they complete once a message is on its way,
    // and the trace should show when.
    for (auto transfer = transfers_.rbegin(); transfer != transfers_.rend(); ++transfer) {
      if (transfer->open) return transfer->work;
    }
    if (!outcome_.has_ended()) guarded([&] { next_step(); });
    return nullptr;
  }

  void wait_for(const std::shared_ptr<Work>& transfer,
                std::optional<std::chrono::milliseconds> timeout) {
    std::exception_ptr error;
    try {
      transfer->wait(timeout);
    } catch (...) {
      error = std::current_exception();
    }
    // Another thread may have seen this transfer complete and have gone on to later steps.
    for (;;) {
      const Turn turn(*this);
      if (!turn) {
        std::this_thread::yield();
        continue;
      }
      for (Transfer& each : transfers_) {
        if (each.work != transfer || !each.open) continue;
        if (error) return fail(error);
        close(each);
      }
      return;
    }
  }

  const Algorithm algorithm_;
  const int rank_;
  const std::uint64_t operation_;
  torch::Tensor flat_;
  const ReduceOp op_;
  const MessageTag tag_;
  const Arithmetic arithmetic_;
  const std::shared_ptr<Backend> backend_;
  Watchdog* const watchdog_;  // the backend's; may be null
  Watchdog::Ticket ticket_ = 0;
  Trace* const trace_;

  std::atomic_flag busy_;  // guards the members below
  torch::Tensor working_;  // flat_, or its float32 copy
  torch::Tensor scratch_;  // received data to be combined
  CommSchedule schedule_;
  std::size_t step_ = 0;
  std::vector<Transfer> transfers_;
  std::shared_ptr<ScheduleWork> self_;
  Outcome outcome_;  // ended by the thread with the turn; any thread may ask
  std::atomic<int> waiting_ = 0;
};

}  // namespace

std::shared_ptr<Work> start_all_reduce(Algorithm algorithm, std::shared_ptr<Backend> backend,
                                       std::shared_ptr<Progress> progress, int rank, int size,
                                       std::uint64_t operation, torch::Tensor flat, ReduceOp op,
                                       Trace* trace) {
  if (trace == nullptr) trace = TraceScope::current();
  const auto work = std::make_shared<ScheduleWork>(algorithm, std::move(backend), rank, size,
                                                   operation, std::move(flat), op, trace);
  work->start();
  if (progress != nullptr) progress->add(work);
  return work;
}

}  // namespace lockstep::comm
