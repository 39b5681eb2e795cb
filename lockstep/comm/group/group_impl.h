// Private to the sources of ProcessGroup: the state that copies of a group share.
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
  Impl(comm::Membership membership, std::shared_ptr<comm::Backend> backend);
  ~Impl();

  // Declared before the backend and therefore destroyed after it: the backend may still query rank
  // 0's store.
  comm::Membership membership;
  const std::shared_ptr<comm::Backend> backend;
  const comm::Prepare prepare;
  const std::shared_ptr<comm::CallLog> log;

  /// Runs a prepared collective or message: run() waits for its end, start() does not. run()
  /// returns the Work's source_rank(): the sender of a received message, if the backend reports it.
  int run(comm::Prepared&& prepared, int tag = 0);
  std::shared_ptr<comm::GroupWork> start(comm::Prepared prepared, int tag = 0);
  WorkPtr start(std::vector<comm::Prepared> prepared);
  /// Starts prepared messages with their tags together.
  std::vector<WorkPtr> start_batch(std::vector<comm::Prepared> prepared,
                                   const std::vector<int>& tags);

  /// Collective. See ProcessGroup::allocate.
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype);
  /// Whether the group's tensors live on a device that its transport cannot reach.
  bool works_through_host() const;

  /// Collective. Exchanges texts through the store, under a name that contains the number of the
  /// call. The wait ends when the group ends.
  std::vector<std::string> tell(const std::string& topic, const std::string& text,
                                std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  /// If this group checks each call on the host: the clause for an error about code that cannot run
  /// such a check ("cannot ...; unset ..."). Otherwise empty.
  std::string checks_on_host() const;

  /// Returns the number of calls of new_group and split so far, and counts one more.
  std::uint64_t next_child();
  /// A group that new_group or split makes.
  struct Child {
    std::string name;
    std::vector<int> members;           ///< ranks in this group, including this rank
    int color = 0;                      ///< distinguishes groups that are made at the same time
    std::optional<std::string> wanted;  ///< the requested backend
    bool splits = false;                ///< splits(wanted)
  };
  /// Collective over the members.
  ProcessGroup make_child(const Child& child);
  comm::Membership membership_of_child(const Child& child);
  /// Takes part in the split of this group's communicator without getting a part. If it fails, the
  /// group ends.
  void leave_split();
  /// Whether all ranks of this group must take part when a group that asks for `wanted` is made,
  /// because its communicator may be split from this group's.
  bool splits(const std::optional<std::string>& wanted) const;

 private:
  struct Started {
    std::shared_ptr<Work> work;
    comm::FlightRecorder::Id id;
  };
  Started begin(comm::Prepared& prepared, int tag);
  std::shared_ptr<Work> begin_staged(comm::Prepared& prepared, int tag,
                                     comm::FlightRecorder::Id id);
  bool must_wait(const comm::Prepared& prepared) const {
    return !prepared.loads.empty() || !staged_->empty();
  }
  bool run_at_once(comm::Prepared& prepared);
  bool needs_no_work(comm::Collective& call) const;
  bool compares_first() const;
  void compare(const comm::Collective& call);
  void look_around();
  void choose_algorithm_of(comm::Collective& call) const;
  /// Calls `hand_over`, which gives the calls with these ids to the backend, and records the
  /// outcome.
  template <class Function>
  auto noting(std::span<const comm::FlightRecorder::Id> ids, Function&& hand_over);
  static comm::Message message_of(comm::Collective& call, int tag);
  std::shared_ptr<Work> hand_over(comm::Collective& call, int tag);
  std::shared_ptr<Work> start_all_reduce(comm::Collective& call);
  void look_for_nan(const comm::Collective& call);

  const bool nan_check_;
  const bool ends_later_;  // operations run on a device stream and end after their calls
  /// Operations whose data is still being copied from a device, and the operations called after
  /// them.
  const std::shared_ptr<comm::StagedStarts> staged_;
  /// Compares the calls of all ranks; null unless it was requested.
  std::unique_ptr<comm::Fingerprints> fingerprints_;
  /// Held from the numbering of a collective to its start, so that those of several threads start
  /// in the order of their numbers, which the ranks compare.
  std::mutex order_mutex_;
  std::mutex mutex_;  // guards the exchange and the counters
  std::uint64_t told_ = 0;
  std::uint64_t children_ = 0;
};

}  // namespace lockstep
