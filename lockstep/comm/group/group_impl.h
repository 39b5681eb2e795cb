// Private to the sources of ProcessGroup: what its copies share.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/diagnostics/fingerprints.h>
#include <lockstep/comm/group/call_log.h>
#include <lockstep/comm/group/group_work.h>
#include <lockstep/comm/group/membership.h>
#include <lockstep/comm/group/prepare.h>
#include <lockstep/comm/group/process_group.h>
#include <lockstep/comm/group/staged_starts.h>

namespace lockstep {

class ProcessGroup::Impl : public std::enable_shared_from_this<ProcessGroup::Impl> {
 public:
  Impl(Membership membership, std::shared_ptr<Backend> backend);
  ~Impl();

  // Declared before the backend: rank 0's store ends after the backend that may still ask it.
  Membership membership;
  const std::shared_ptr<Backend> backend;
  const Prepare prepare;
  const std::shared_ptr<CallLog> log;

  /// A prepared collective or message, to its end or as a handle.
  void run(Prepared&& prepared, int tag = 0);
  std::shared_ptr<GroupWork> start(Prepared prepared, int tag = 0);
  WorkPtr start(std::vector<Prepared> prepared);
  /// Prepared messages and their tags, started together.
  std::vector<WorkPtr> start_batch(std::vector<Prepared> prepared, const std::vector<int>& tags);

  /// Collective. See ProcessGroup::allocate.
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype);
  /// Whether the group's tensors live on a device that its transport cannot reach.
  bool works_through_host() const;

  /// Collective. Texts through the store, under a name that counts the calls; the group's end ends
  /// it.
  std::vector<std::string> tell(const std::string& topic, const std::string& text,
                                std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  /// What this group checks on the host before each call, as the end of a sentence; empty: nothing.
  std::string checks_on_host() const;

  /// Counts new_group and split.
  std::uint64_t next_child();
  /// Collective over `members`, ranks of this group of which this is one. `wanted`: backend.
  /// `color` tells groups apart that are made at the same time.
  ProcessGroup make_child(const std::string& name, const std::vector<int>& members, int color,
                          const std::optional<std::string>& wanted = std::nullopt);
  /// Whether all ranks of this group take part in the making of one that asks for `wanted`, because
  /// its communicator may be split from ours.
  bool splits(const std::optional<std::string>& wanted) const;

 private:
  struct Started {
    std::shared_ptr<Work> work;
    FlightRecorder::Id id;
  };
  Started begin(Prepared& prepared, int tag);
  std::shared_ptr<Work> begin_staged(Prepared& prepared, int tag, FlightRecorder::Id id);
  bool must_wait(const Prepared& prepared) const {
    return !prepared.loads.empty() || !staged_->empty();
  }
  bool run_at_once(Prepared& prepared);
  bool needs_no_work(Collective& call) const;
  bool compares_first() const;
  void compare(const Collective& call);
  void look_around();
  void choose_algorithm_of(Collective& call) const;
  /// Runs what hands calls with these ids over to the backend, and notes what became of it.
  template <class Function>
  auto noting(std::span<const FlightRecorder::Id> ids, Function&& hand_over);
  static Message message_of(Collective& call, int tag);
  std::shared_ptr<Work> hand_over(Collective& call, int tag);
  std::shared_ptr<Work> start_all_reduce(Collective& call);
  void look_for_nan(const Collective& call);

  const bool nan_check_;
  const bool ends_later_;  // operations, on a stream of the device, than their calls
  /// Operations whose data is on its way from a device, and those called after them.
  const std::shared_ptr<StagedStarts> staged_;
  /// Compares what the ranks call; null where nobody asked for it.
  std::unique_ptr<Fingerprints> fingerprints_;
  std::mutex mutex_;  // guards the exchange and the counters
  std::uint64_t told_ = 0;
  std::uint64_t children_ = 0;
};

}  // namespace lockstep
