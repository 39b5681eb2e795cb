#include <lockstep/comm/group/group_impl.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <lockstep/comm/algorithms/schedule_work.h>
#include <lockstep/comm/kernels/plain_memory.h>
#include <lockstep/comm/kernels/reduce.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep {
namespace {

comm::PrepareOptions prepare_options(const comm::Membership& membership,
                                     const comm::Backend& backend) {
  return {.rank = membership.rank,
          .size = membership.size,
          .world_rank = membership.world_rank(),
          .memory = backend.traits().memory,
          .device = membership.options.device};
}

bool reduces(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduce ||
         kind == CallKind::kReduceScatter;
}

// Index of the first NaN, or the number of elements.
std::size_t first_nan(const torch::Tensor& flat, detail::DataType type) {
  const auto count = static_cast<std::size_t>(flat.numel());
  if (!detail::is_floating_point(type) || count == 0) return count;
  if (flat.is_cpu())
    return comm::find_nan(static_cast<const std::byte*>(flat.const_data_ptr()), count, type);
  const auto places = flat.isnan().nonzero();
  return places.numel() == 0 ? count : static_cast<std::size_t>(places[0].item<std::int64_t>());
}

}  // namespace

ProcessGroup::Impl::Impl(comm::Membership membership_in, std::shared_ptr<comm::Backend> backend_in)
    : membership(std::move(membership_in)),
      backend(std::move(backend_in)),
      prepare(prepare_options(membership, *backend)),
      log(std::make_shared<comm::CallLog>(
          membership.recorder,
          comm::flight_recorder_directory(membership.options.flight_recorder_directory),
          membership.name, membership.world_ranks)),
      nan_check_(membership.options.nan_check || environment_flag("LOCKSTEP_NAN_CHECK")),
      ends_later_(backend->runs_on_stream() && !backend->traits().completes_at_once),
      staged_(std::make_shared<comm::StagedStarts>(membership.progress)) {
  if (membership.exchange && comm::fingerprints_wanted()) {
    fingerprints_ =
        std::make_unique<comm::Fingerprints>(*membership.exchange, membership.options.timeout);
  }
}

// Calls made before the group was dropped are still handed to the transport, as they are without a
// device.
ProcessGroup::Impl::~Impl() {
  staged_->finish(membership.options.timeout, [this] { backend->throw_if_ended(); });
}

// --- Calls ---------------------------------------------------------------------------------------

int ProcessGroup::Impl::run(comm::Prepared&& prepared, int tag) {
  if (run_at_once(prepared)) return -1;
  auto [work, id] = begin(prepared, tag);
  comm::GroupWork call(std::move(work), std::move(prepared.copies), log, id,
                       backend->runs_on_stream());
  call.wait(std::nullopt);
  return call.source_rank();
}

// Fast path for a blocking collective that needs only its backend. Returns false if the call needs
// more.
bool ProcessGroup::Impl::run_at_once(comm::Prepared& prepared) {
  std::unique_lock turn(order_mutex_);
  if (must_wait(prepared) || !needs_no_work(prepared.call)) return false;
  log->number(prepared.call);
  std::optional<comm::FlightRecorder::Id> noted;
  // Recorded while the peers' answer is on its way, which takes about as long.
  const auto note = [&] {
    if (turn.owns_lock()) turn.unlock();
    noted = log->created(prepared.call, /*begun=*/true);
  };
  const auto id = [&] {
    if (!noted) note();
    return *noted;
  };
  try {
    // A std::function allocates memory for a callable of three pointers, but none for a reference.
    backend->run(prepared.call, std::ref(note));
    if (!prepared.copies.empty()) [[unlikely]]
      comm::copy_results(prepared.copies);
    log->completed(id(), -1);
    return true;
  } catch (...) {
    std::rethrow_exception(log->failed(id(), std::current_exception()));
  }
}

bool ProcessGroup::Impl::needs_no_work(comm::Collective& call) const {
  const CallKind kind = call.description.kind;
  if (detail::is_message(call.description) || compares_first()) return false;
  if (ends_later_) return false;
  if (nan_check_ && reduces(kind)) return false;
  if (kind != CallKind::kAllReduce) return true;
  choose_algorithm_of(call);
  return call.algorithm == Algorithm::kNative;
}

std::shared_ptr<comm::GroupWork> ProcessGroup::Impl::start(comm::Prepared prepared, int tag) {
  auto [work, id] = begin(prepared, tag);
  return std::make_shared<comm::GroupWork>(std::move(work), std::move(prepared.copies), log, id,
                                           backend->runs_on_stream());
}

WorkPtr ProcessGroup::Impl::start(std::vector<comm::Prepared> prepared) {
  if (prepared.size() == 1) return start(std::move(prepared[0]));
  std::vector<WorkPtr> works;
  for (auto& each : prepared) works.push_back(start(std::move(each)));
  return std::make_shared<comm::WorkList>(std::move(works));
}

template <class Function>
auto ProcessGroup::Impl::noting(std::span<const comm::FlightRecorder::Id> ids,
                                Function&& hand_over) {
  try {
    auto result = hand_over();
    for (const auto id : ids) log->started(id);
    return result;
  } catch (...) {
    std::exception_ptr error = std::current_exception();
    for (const auto id : ids) error = log->failed(id, error);
    std::rethrow_exception(error);
  }
}

ProcessGroup::Impl::Started ProcessGroup::Impl::begin(comm::Prepared& prepared, int tag) {
  std::unique_lock turn(order_mutex_, std::defer_lock);
  // A message may have to start while another thread's collective compares the ranks' calls.
  if (!detail::is_message(prepared.call.description)) turn.lock();
  log->number(prepared.call);
  const auto id = log->created(prepared.call);
  if (must_wait(prepared)) return {begin_staged(prepared, tag, id), id};
  return {noting({&id, 1}, [&] { return hand_over(prepared.call, tag); }), id};
}

std::shared_ptr<Work> ProcessGroup::Impl::begin_staged(comm::Prepared& prepared, int tag,
                                                       comm::FlightRecorder::Id id) {
  comm::StagedStarts::Call call;
  // The destructor drains the queue before any member of the group is destroyed.
  call.start = [this, collective = prepared.call, tag, id]() mutable {
    auto work = hand_over(collective, tag);
    log->started(id);
    return work;
  };
  call.loads = std::move(prepared.loads);
  call.owner = shared_from_this();
  call.name = lockstep::str("what rank ", membership.world_rank(), " gives to ",
                            describe(prepared.call.description), " on ", membership.options.device);
  call.abort = [backend = backend](const std::string& reason) { backend->abort(reason); };
  call.check = [backend = backend] { backend->throw_if_ended(); };
  call.timeout = membership.options.timeout;
  try {
    return staged_->push(std::move(call));
  } catch (...) {
    std::rethrow_exception(log->failed(id, std::current_exception()));
  }
}

std::vector<WorkPtr> ProcessGroup::Impl::start_batch(std::vector<comm::Prepared> prepared,
                                                     const std::vector<int>& tags) {
  const auto waits = [&](const comm::Prepared& each) { return must_wait(each); };
  if (std::any_of(prepared.begin(), prepared.end(), waits)) {
    std::vector<WorkPtr> one_by_one;
    for (std::size_t i = 0; i < prepared.size(); ++i) {
      one_by_one.push_back(start(std::move(prepared[i]), tags[i]));
    }
    return one_by_one;
  }
  std::vector<comm::FlightRecorder::Id> ids;
  std::vector<comm::Message> messages;
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    log->number(prepared[i].call);
    ids.push_back(log->created(prepared[i].call));
    messages.push_back(message_of(prepared[i].call, tags[i]));
  }
  auto works = noting(ids, [&] { return backend->batch(std::move(messages)); });
  std::vector<WorkPtr> started;
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    started.push_back(std::make_shared<comm::GroupWork>(std::move(works[i]),
                                                        std::move(prepared[i].copies), log, ids[i],
                                                        backend->runs_on_stream()));
  }
  return started;
}

comm::Message ProcessGroup::Impl::message_of(comm::Collective& call, int tag) {
  const int peer = call.description.root;
  const bool sends = call.description.kind == CallKind::kSend;
  return {call.description.kind, sends ? std::move(call.input) : std::move(call.output),
          peer < 0 ? std::nullopt : std::optional<int>(peer), tag};
}

std::shared_ptr<Work> ProcessGroup::Impl::hand_over(comm::Collective& call, int tag) {
  const CallKind kind = call.description.kind;
  if (detail::is_message(call.description)) {
    comm::Message message = message_of(call, tag);
    if (kind == CallKind::kSend)
      return backend->send(std::move(message.tensor), *message.peer, tag);
    return backend->recv(std::move(message.tensor), message.peer, tag);
  }
  const bool is_all_reduce = kind == CallKind::kAllReduce;
  if (is_all_reduce) choose_algorithm_of(call);
  if (compares_first()) [[unlikely]]
    compare(call);
  if (nan_check_ && reduces(call.description.kind)) [[unlikely]]
    look_for_nan(call);
  if (is_all_reduce && membership.size > 1) return start_all_reduce(call);
  return backend->start(call);
}

std::string ProcessGroup::Impl::checks_on_host() const {
  if (nan_check_) {
    return "cannot look for NaN before each reduction; unset LOCKSTEP_NAN_CHECK (nan_check)";
  }
  if (!compares_first()) return {};
  return "cannot compare the ranks' calls before each; unset LOCKSTEP_DEBUG";
}

bool ProcessGroup::Impl::compares_first() const { return fingerprints_ != nullptr; }

void ProcessGroup::Impl::compare(const comm::Collective& call) {
  try {
    fingerprints_->compare(call.number, call.description, [&] { look_around(); });
  } catch (const CommError& error) {
    backend->abort(error.what());  // for ranks that are not comparing now
    throw;
  }
}

// Called repeatedly while this rank waits for the store, so that pending operations make progress.
void ProcessGroup::Impl::look_around() {
  if (membership.progress) membership.progress->advance(nullptr);
  backend->check();
}

void ProcessGroup::Impl::choose_algorithm_of(comm::Collective& call) const {
  CallDescription& description = call.description;
  if (membership.size == 1) call.algorithm = Algorithm::kNative;
  if (call.algorithm == Algorithm::kAuto) {
    call.algorithm = comm::choose_algorithm(
        backend->gathers_to_reduce(description.type, description.op), membership.size,
        description.count * detail::element_size(description.type));
  }
  description.algorithm = call.algorithm;
}

std::shared_ptr<Work> ProcessGroup::Impl::start_all_reduce(comm::Collective& call) {
  const CallDescription& description = call.description;
  if (call.algorithm == Algorithm::kNative) return backend->start(call);
  if (!backend->traits().messages_overlap) {
    throw ConfigError(lockstep::str("rank ", membership.world_rank(), ": all_reduce: algorithm ",
                                    algorithm_name(call.algorithm), " does not run over ",
                                    backend->name(), ", whose messages wait for each other; ",
                                    "choose native, or backend gloo"));
  }
  return lockstep::comm::start_all_reduce(call.algorithm, backend, membership.progress,
                                          membership.rank, membership.size, call.number,
                                          call.output, description.op);
}

void ProcessGroup::Impl::look_for_nan(const comm::Collective& call) {
  const torch::Tensor& given = call.input.defined() ? call.input : call.output;
  const std::size_t place = first_nan(given, call.description.type);
  if (place == static_cast<std::size_t>(given.numel())) return;
  const std::string reason = lockstep::str("rank ", membership.world_rank(), " brought NaN to ",
                                           describe(call.description), " (operation ", call.number,
                                           "), first at element ", place);
  backend->abort(reason);
  throw CommError(reason);
}

// --- Memory --------------------------------------------------------------------------------------

bool ProcessGroup::Impl::works_through_host() const {
  return !backend->runs_on_stream() && !membership.options.device.is_cpu();
}

torch::Tensor ProcessGroup::Impl::allocate(at::IntArrayRef shape, torch::ScalarType dtype) {
  if (!works_through_host()) return backend->allocate(shape, dtype);
  backend->throw_if_ended();
  return comm::zeroed_memory(shape,
                             torch::TensorOptions().dtype(dtype).device(membership.options.device));
}

// --- Through the store ---------------------------------------------------------------------------

std::vector<std::string> ProcessGroup::Impl::tell(
    const std::string& topic, const std::string& text,
    std::optional<std::chrono::milliseconds> timeout) {
  if (membership.size == 1) return {text};
  const std::scoped_lock lock(mutex_);
  return membership.exchange->exchange(
      lockstep::str(topic, " (number ", told_++, ")"), text, [&] { look_around(); }, timeout);
}

std::uint64_t ProcessGroup::Impl::next_child() {
  const std::scoped_lock lock(mutex_);
  return children_++;
}

}  // namespace lockstep
