// Writes a rank's operations in the format that PyTorch's analyser
// (torch.distributed.flight_recorder) reads: the dictionary returned by
// torch._C._distributed_c10d._dump_fr_trace(), version 2.10.
//
// Two conventions are Lockstep's own:
// - The analyser pairs the operations of a group by their collective_seq_id and expects every
//   member of the group in each. A message involves two ranks only, so messages between two ranks
//   are written as operations of a group of these two ("world, ranks 1 and 4"). The k-th message
//   has the number 2 k or 2 k + 1, depending on its direction. A receive from any source whose
//   sender is not known yet belongs to a group of this rank alone.
// - Entries have additional keys, which the analyser ignores: "call" (the call as in error
//   messages), "number" (its number there) and "failed".
#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include <lockstep/comm/diagnostics/flight_recorder_parts.h>
#include <lockstep/core/encoding/pickle_writer.h>
#include <lockstep/core/strings.h>

namespace lockstep::comm {
namespace {

const char* scalar_type_name(detail::DataType type) {
  switch (type) {
    case detail::DataType::kFloat32:
      return "Float";
    case detail::DataType::kFloat64:
      return "Double";
    case detail::DataType::kFloat16:
      return "Half";
    case detail::DataType::kBFloat16:
      return "BFloat16";
    case detail::DataType::kInt8:
      return "Char";
    case detail::DataType::kInt16:
      return "Short";
    case detail::DataType::kInt32:
      return "Int";
    case detail::DataType::kInt64:
      return "Long";
    case detail::DataType::kUInt8:
      return "Byte";
    case detail::DataType::kBool:
      return "Bool";
    case detail::DataType::kByte:
      return "Byte";
  }
  return "?";
}

using Sizes = std::vector<std::int64_t>;

/// The sizes of one rank's piece; flat if the description does not hold all of them. The largest
/// number of a shape also stands for all larger sizes.
Sizes piece_sizes(const CallDescription& call) {
  const Sizes flat{static_cast<std::int64_t>(call.count)};
  if (call.shape.dimensions == 0 || call.shape.dimensions > Shape::kPlaces) return flat;
  const auto begin = call.shape.sizes.begin(), end = begin + call.shape.dimensions;
  const bool is_cut = std::find(begin, end, std::numeric_limits<std::uint32_t>::max()) != end;
  return is_cut ? flat : Sizes(begin, end);
}

/// The sizes of a rank's input and output. The analyser expects a tensor in both, even if there is
/// none.
std::pair<Sizes, Sizes> sizes(const CallDescription& call, std::size_t ranks, bool is_root) {
  if (call.kind == CallKind::kBarrier) return {{0}, {0}};
  const Sizes piece = piece_sizes(call);
  Sizes all = piece;
  all.insert(all.begin(), static_cast<std::int64_t>(ranks));
  switch (call.kind) {
    case CallKind::kGather:
      return {piece, is_root ? all : Sizes{0}};
    case CallKind::kAllGather:
      return {piece, all};
    case CallKind::kScatter:
      return {is_root ? all : Sizes{0}, piece};
    case CallKind::kReduceScatter:
      return {all, piece};
    case CallKind::kAllToAll:
      return {all, all};
    default:
      return {piece, piece};
  }
}

const char* state_name(std::uint64_t state, std::uint64_t started) {
  if (state == flight::kCompleted) return "completed";
  return state == flight::kStarted || started != 0 ? "started" : "scheduled";
}

/// A group as written for the analyser.
struct Team {
  std::string name, description;
  std::vector<int> ranks;
};

}  // namespace

class FlightRecorderDump {
 public:
  explicit FlightRecorderDump(const FlightRecorder& recorder)
      : recorder_(recorder),
        lock_(recorder.groups_mutex_),
        operations_(recorder.snapshot()),
        end_ticks_(flight::ticks()),
        end_ns_(flight::wall_clock_ns()) {
    // A thread may have recorded an operation for a group that has been removed in the meantime.
    std::erase_if(operations_, [&](const auto& each) {
      return !recorder_.groups_.contains(each.record.group_id);
    });
  }

  std::string write() {
    out_.begin_dict();
    key("version"), out_.text("2.10");
    key("comm_lib_version"), out_.text("lockstep");
    write_groups();
    write_status();
    key("entries"), out_.begin_list();
    for (const auto& each : operations_) write_entry(each);
    out_.end_list();
    out_.end_dict();
    return out_.finish();
  }

 private:
  using Snapshot = FlightRecorder::Snapshot;
  using Group = FlightRecorder::Group;

  void key(std::string_view name) { out_.text(name); }

  const Group& group_of(const Snapshot& operation) const {
    return *recorder_.groups_.at(operation.record.group_id);
  }

  Team team_of(const Snapshot& operation) const {
    const Group& group = group_of(operation);
    const CallDescription& call = operation.record.call;
    if (!detail::is_message(call)) return {group.name, group.description, group.world_ranks};
    if (call.root < 0) {
      return {
          str(group.name, ", rank ", recorder_.rank_, " from any"), "undefined", {recorder_.rank_}};
    }
    const int peer = group.world_ranks[static_cast<std::size_t>(call.root)];
    const auto [low, high] = std::minmax(recorder_.rank_, peer);
    return {str(group.name, ", ranks ", low, " and ", high), "undefined", {low, high}};
  }

  /// The number by which the analyser pairs an operation with the operations of other ranks.
  std::int64_t pairing_number(const Snapshot& operation) const {
    const CallDescription& call = operation.record.call;
    if (!detail::is_message(call)) return static_cast<std::int64_t>(operation.record.sequence);
    if (call.root < 0) return static_cast<std::int64_t>(operation.id);
    const bool upwards = (recorder_.rank_ < peer_of(operation)) == (call.kind == CallKind::kSend);
    return static_cast<std::int64_t>(2 * operation.record.message + (upwards ? 0 : 1));
  }

  int peer_of(const Snapshot& operation) const {
    return group_of(operation).world_ranks[static_cast<std::size_t>(operation.record.call.root)];
  }

  /// Begins with "gloo:", because the analyser knows only the names of PyTorch's own backends. The
  /// name of a message includes both ranks' positions in the group of two.
  std::string profiling_name(const Snapshot& operation) const {
    const CallDescription& call = operation.record.call;
    std::string name = str("gloo:", call_name(call.kind));
    if (!detail::is_message(call)) return name;
    const bool sends = call.kind == CallKind::kSend;
    const int own = call.root >= 0 && recorder_.rank_ > peer_of(operation) ? 1 : 0;
    const int other = call.root >= 0 ? 1 - own : 0;
    return str(name, ' ', own, sends ? "->" : "<-", other);
  }

  void write_groups() {
    std::map<std::string, Team> teams;
    for (const auto& [id, group] : recorder_.groups_) {
      teams[group->name] = {group->name, group->description, group->world_ranks};
    }
    for (const auto& each : operations_) {
      Team team = team_of(each);
      teams[team.name] = team;
    }
    key("pg_config"), out_.begin_dict();
    for (const auto& [name, team] : teams) {
      std::string ranks;
      for (const int rank : team.ranks) ranks += str(ranks.empty() ? "" : ", ", rank);
      key(name), out_.begin_dict();
      key("name"), out_.text(name);
      key("desc"), out_.text(team.description);
      key("ranks"), out_.text(str('[', ranks, ']'));
      out_.end_dict();
    }
    out_.end_dict();
  }

  void write_status() {
    struct Status {
      std::int64_t enqueued = -1, started = -1, completed = -1;
    };
    std::map<std::uint64_t, Status> groups;
    for (const auto& [id, group] : recorder_.groups_) groups[id];
    for (const auto& each : operations_) {
      if (detail::is_message(each.record.call)) continue;
      Status& status = groups[each.record.group_id];
      const auto number = static_cast<std::int64_t>(each.record.sequence);
      status.enqueued = std::max(status.enqueued, number);
      if (each.started != 0) status.started = std::max(status.started, number);
      if (each.state == flight::kCompleted) status.completed = std::max(status.completed, number);
    }
    key("pg_status"), out_.begin_dict();
    for (const auto& [id, status] : groups) {
      key(str(id)), out_.begin_dict();
      key("last_enqueued_collective"), out_.integer(status.enqueued);
      key("last_started_collective"), out_.integer(status.started);
      key("last_completed_collective"), out_.integer(status.completed);
      out_.end_dict();
    }
    out_.end_dict();
  }

  void write_entry(const Snapshot& operation) {
    const CallDescription& call = operation.record.call;
    const Team team = team_of(operation);
    const auto number = static_cast<std::int64_t>(operation.record.sequence);
    out_.begin_dict();
    key("frames"), out_.begin_list(), out_.end_list();
    key("record_id"), out_.integer(static_cast<std::int64_t>(operation.id));
    key("pg_id"), out_.integer(static_cast<std::int64_t>(operation.record.group_id));
    key("process_group"), out_.text(team.name), out_.text(team.description), out_.pair();
    key("collective_seq_id"), out_.integer(pairing_number(operation));
    key("p2p_seq_id"), out_.integer(detail::is_message(call) ? pairing_number(operation) : 0);
    key("op_id"), out_.integer(static_cast<std::int64_t>(operation.id));
    key("profiling_name"), out_.text(profiling_name(operation));
    write_tensors(operation);
    key("state"), out_.text(state_name(operation.state, operation.started));
    key("time_created_ns"), out_.integer(wall_clock(operation.created));
    write_time("time_discovered_started_ns", operation.started);
    write_time("time_discovered_completed_ns",
               operation.state == flight::kCompleted ? operation.ended : 0);
    key("retired"), out_.boolean(operation.state == flight::kCompleted);
    key("is_p2p"), out_.boolean(detail::is_message(call));
    key("call"), out_.text(describe(call));
    key("number"), out_.integer(number);
    key("failed"), out_.boolean(operation.state == flight::kFailed);
    out_.end_dict();
  }

  void write_tensors(const Snapshot& operation) {
    const CallDescription& call = operation.record.call;
    const auto& ranks = group_of(operation).world_ranks;
    const bool is_root =
        call.root >= 0 && ranks[static_cast<std::size_t>(call.root)] == recorder_.rank_;
    const auto [input, output] = sizes(call, ranks.size(), is_root);
    for (const auto& [name, tensor] : {std::pair("input", input), std::pair("output", output)}) {
      key(str(name, "_sizes")), out_.begin_list(), out_.begin_list();
      for (const std::int64_t size : tensor) out_.integer(size);
      out_.end_list(), out_.end_list();
      key(str(name, "_dtypes")), out_.begin_list(), out_.text(scalar_type_name(call.type)),
          out_.end_list();
    }
  }

  void write_time(std::string_view name, std::uint64_t ticks) {
    key(name);
    ticks == 0 ? out_.none() : out_.integer(wall_clock(ticks));
  }

  /// Nanoseconds since 1970, interpolated between the recorder's creation and this dump.
  std::int64_t wall_clock(std::uint64_t ticks) const {
    const double span = static_cast<double>(end_ticks_ - recorder_.first_.ticks);
    const double part = span > 0 ? static_cast<double>(ticks - recorder_.first_.ticks) / span : 0;
    return recorder_.first_ns_ +
           static_cast<std::int64_t>(part * static_cast<double>(end_ns_ - recorder_.first_ns_));
  }

  const FlightRecorder& recorder_;
  const std::scoped_lock<std::mutex> lock_;
  std::vector<Snapshot> operations_;
  const std::uint64_t end_ticks_;
  const std::int64_t end_ns_;
  PickleWriter out_;
};

std::string FlightRecorder::pickle() const { return FlightRecorderDump(*this).write(); }

}  // namespace lockstep::comm
