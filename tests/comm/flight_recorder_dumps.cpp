// Writes the dumps of all ranks of several programs, for flight_recorder_test.py.
//
// Usage: flight_recorder_dumps DIRECTORY        (makes DIRECTORY/PROGRAM/rank_N)
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/comm/diagnostics/flight_recorder.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

CallDescription call(CallKind kind, std::vector<std::uint32_t> sizes, int root = -1,
                     detail::DataType type = detail::DataType::kFloat32) {
  CallDescription result;
  result.kind = kind;
  result.type = type;
  result.root = root;
  result.count = 1;
  result.shape.dimensions = static_cast<std::uint8_t>(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i < Shape::kPlaces) result.shape.sizes[i] = sizes[i];
    result.count *= sizes[i];
  }
  return result;
}

/// One rank of a recorded program: a first group and, if a test needs it, a group of some ranks.
struct Rank {
  Rank(int number, int size) : number(number), recorder(number, size) {
    std::vector<int> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(rank);
    world = recorder.add_group("world", all, "default_pg");
  }

  FlightRecorder::Id create(const CallDescription& what, FlightRecorder::Group* group = nullptr) {
    const bool message = what.kind == CallKind::kSend || what.kind == CallKind::kRecv;
    return recorder.created(group ? group : world, message ? messages++ : collectives++, what);
  }
  FlightRecorder::Id start(const CallDescription& what, FlightRecorder::Group* group = nullptr) {
    const auto id = create(what, group);
    recorder.started(id);
    return id;
  }
  void run(const CallDescription& what, FlightRecorder::Group* group = nullptr) {
    recorder.completed(start(what, group));
  }

  int number;
  FlightRecorder recorder;
  FlightRecorder::Group* world;
  std::uint64_t collectives = 0, messages = 0;
};

void every_kind(Rank& rank) {
  for (const CallKind kind : {CallKind::kBarrier, CallKind::kBroadcast, CallKind::kReduce,
                              CallKind::kAllReduce, CallKind::kGather, CallKind::kAllGather,
                              CallKind::kScatter, CallKind::kReduceScatter, CallKind::kAllToAll}) {
    rank.run(call(kind, {2, 3}, kind == CallKind::kBarrier ? -1 : 1));
  }
  rank.run(call(CallKind::kAllReduce, {}, -1, detail::DataType::kInt64));
  rank.run(call(CallKind::kAllReduce, {0}, -1, detail::DataType::kBFloat16));
}

void every_shape_and_type(Rank& rank) {
  rank.run(call(CallKind::kAllReduce, {1, 2, 3, 4, 5, 6}));
  rank.run(call(CallKind::kAllReduce, {1, 2, 3, 4, 5, 6, 7}));
  rank.run(call(CallKind::kAllGather, {1 << 10, 1 << 10, 1 << 10, 1 << 10, 1, 1, 1}));
  // A shape holds no size above 2^32 - 1.
  for (const std::uint32_t rows : {1U, 2U}) {
    CallDescription large = call(CallKind::kBroadcast, {0xFFFF'FFFF, rows}, 0);
    large.shape.dimensions = static_cast<std::uint8_t>(rows);
    large.count = std::uint64_t{rows} << 33;
    rank.run(large);
  }
  using detail::DataType;
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16,
        DataType::kInt8, DataType::kInt16, DataType::kInt32, DataType::kInt64, DataType::kUInt8,
        DataType::kBool, DataType::kByte}) {
    rank.run(call(CallKind::kBroadcast, {2}, 0, type));
  }
}

const std::pair<const char*, std::pair<int, std::function<void(Rank&)>>> kPrograms[] = {
    {"correct", {3, every_kind}},
    {"shapes_and_types", {2, every_shape_and_type}},
    {"another_collective",
     {3,
      [](Rank& rank) {
        rank.run(call(CallKind::kAllReduce, {4}));
        rank.start(rank.number == 1 ? call(CallKind::kBroadcast, {4}, 0)
                                    : call(CallKind::kAllReduce, {4}));
      }}},
    {"another_size",
     {2, [](Rank& rank) { rank.start(call(CallKind::kAllReduce, {rank.number == 1 ? 5u : 4u})); }}},
    {"another_type",
     {2,
      [](Rank& rank) {
        rank.start(call(CallKind::kAllReduce, {4}, -1,
                        rank.number == 1 ? detail::DataType::kInt32 : detail::DataType::kFloat32));
      }}},
    {"missing",
     {3,
      [](Rank& rank) {
        rank.run(call(CallKind::kBarrier, {}));
        if (rank.number != 2) rank.recorder.failed(rank.start(call(CallKind::kAllReduce, {4})));
      }}},
    {"group_missing",
     {3,
      [](Rank& rank) {
        if (rank.number == 1) return;
        auto* pair = rank.recorder.add_group("group/1", {2, 0});
        rank.run(call(CallKind::kAllReduce, {4}), pair);
        if (rank.number == 0) rank.start(call(CallKind::kBroadcast, {4}, 0), pair);
      }}},
    // Messages in all orders and directions, and one receive from any source.
    {"messages",
     {3,
      [](Rank& rank) {
        const auto send = [&](int to, std::uint32_t n) {
          rank.run(call(CallKind::kSend, {n}, to));
        };
        const auto recv = [&](int from, std::uint32_t n) {
          rank.run(call(CallKind::kRecv, {n}, from));
        };
        if (rank.number == 0) send(2, 1), send(1, 2), recv(2, 4), send(1, 3);
        if (rank.number == 1) {
          recv(0, 2);
          rank.recorder.completed(rank.start(call(CallKind::kRecv, {3}, -1)), 0);
        }
        if (rank.number == 2) send(0, 4), recv(0, 1);
        rank.run(call(CallKind::kBarrier, {}));
      }}},
    // An operation in every state, and a receive from any source.
    {"unfinished",
     {2,
      [](Rank& rank) {
        rank.run(call(CallKind::kBarrier, {}));
        rank.start(call(CallKind::kAllReduce, {4}));
        rank.recorder.failed(rank.create(call(CallKind::kAllReduce, {5})));
        rank.create(call(CallKind::kBroadcast, {4}, 0));
        rank.start(call(CallKind::kRecv, {3}, -1));
      }}},
    {"message_missing",
     {3,
      [](Rank& rank) {
        if (rank.number == 2) rank.run(call(CallKind::kSend, {3}, 1));
        if (rank.number == 1) {
          rank.run(call(CallKind::kRecv, {3}, 2));
          rank.start(call(CallKind::kRecv, {3}, 2));
        }
      }}},
};

}  // namespace
}  // namespace lockstep::comm

int main(int count, char** arguments) try {
  if (count != 2) throw lockstep::ConfigError("usage: flight_recorder_dumps DIRECTORY");
  for (const auto& [name, program] : lockstep::comm::kPrograms) {
    for (int number = 0; number < program.first; ++number) {
      lockstep::comm::Rank rank(number, program.first);
      program.second(rank);
      rank.recorder.dump(std::filesystem::path(arguments[1]) / name);
    }
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
