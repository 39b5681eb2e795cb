// The shared-memory engine with ranks as threads (ThreadSanitizer judges it) and as processes.
#include <lockstep/comm/backends/shm/engine.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <cstring>
#include <random>

#include <lockstep/core/error.h>
#include <tests/support/ranks.h>

namespace lockstep::shm {
namespace {

using testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_processes;
using testing_support::run_threads;

constexpr std::chrono::milliseconds kTimeout = std::chrono::seconds(20);

// The engines of one group: each rank makes its own over one segment.
struct Group {
  explicit Group(int size, EngineOptions options = {})
      : size(size), options(options), control(Segment::create(Engine::control_bytes(size, options))) {}

  std::shared_ptr<Engine> engine(int rank) const {
    return std::make_shared<Engine>(control, rank, size, options);
  }

  int size;
  EngineOptions options;
  std::shared_ptr<Segment> control;
};

template <class T>
std::byte* bytes_of(T* data) {
  return reinterpret_cast<std::byte*>(data);
}

// Rank r's element i: different everywhere, and with sums that float32 has to round.
std::vector<float> values_of(int rank, std::size_t count) {
  std::mt19937 generator(static_cast<unsigned>(rank + 1));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

std::vector<float> expected_sum(int size, std::size_t count, float scale) {
  std::vector<float> sum = values_of(0, count);
  for (int rank = 1; rank < size; ++rank) {
    const auto other = values_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += other[i];
  }
  for (float& value : sum) value *= scale;
  return sum;
}

struct Case {
  int size;
  std::size_t count;
  bool symmetric;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.size << " ranks, " << c.count << (c.symmetric ? " symmetric" : " private");
}

class AllReduce : public testing::TestWithParam<Case> {};

// Bit for bit: the engine promises to add in the order of the ranks.
TEST_P(AllReduce, AddsInRankOrderOnAllRanks) {
  const auto [size, count, symmetric] = GetParam();
  Group group(size, {.slot_bytes = 4096});
  const auto sum = expected_sum(size, count, 1);
  const auto average = expected_sum(size, count, 1.0F / static_cast<float>(size));
  const auto errors = run_threads(size, [&, size = size, count = count, symmetric = symmetric](int rank) {
    auto engine = group.engine(rank);
    std::vector<float> memory(count);
    std::shared_ptr<std::byte> shared;
    float* data = memory.data();
    if (symmetric) {
      shared = engine->allocate(count * sizeof(float), kTimeout);
      data = reinterpret_cast<float*>(shared.get());
    }
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      const auto mine = values_of(rank, count);
      std::copy(mine.begin(), mine.end(), data);
      engine->wait(engine->post_all_reduce(bytes_of(data), count, DataType::kFloat32, op), kTimeout);
      const auto& expected = op == ReduceOp::kSum ? sum : average;
      // Bit patterns: -0 is not 0 here.
      for (std::size_t i = 0; i < count; ++i) {
        if (std::bit_cast<std::uint32_t>(data[i]) != std::bit_cast<std::uint32_t>(expected[i])) {
          throw Error(str("wrong sum at ", i));
        }
      }
    }
    engine->wait(engine->post_barrier(), kTimeout);
  });
  EXPECT_EQ(errors, no_errors(size));
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllReduce, testing::Values(
    Case{1, 5, false}, Case{2, 0, false}, Case{2, 1, false}, Case{2, 1, true}, Case{2, 17, true},
    Case{2, 1023, false}, Case{2, 1024, false}, Case{2, 1025, false}, Case{2, 100000, false},
    Case{2, 100001, true}, Case{3, 7, true}, Case{3, 5000, false}, Case{4, 33, true},
    Case{4, 20000, false}, Case{8, 4099, true}));

TEST(ShmEngine, ReducesEveryType) {
  struct TypeCase {
    DataType type;
    ReduceOp op;
    std::vector<std::uint64_t> ranks;  // bit patterns of ranks 0 and 1
    std::uint64_t expected;
  };
  const std::vector<TypeCase> cases = {
      {DataType::kUInt8, ReduceOp::kSum, {200, 100}, 44},
      {DataType::kInt32, ReduceOp::kSum, {0xFFFFFFFF, 3}, 2},
      {DataType::kInt64, ReduceOp::kSum, {~std::uint64_t{0}, 3}, 2},
      {DataType::kFloat32, ReduceOp::kAverage, {0x3F800000, 0x40400000}, 0x40000000},
      {DataType::kFloat64, ReduceOp::kSum, {0x3FF0000000000000, 0x4000000000000000}, 0x4008000000000000},
      {DataType::kFloat16, ReduceOp::kAverage, {0x3C00, 0x4200}, 0x4000},
      {DataType::kBFloat16, ReduceOp::kAverage, {0x3F80, 0x4040}, 0x4000},
      {DataType::kBFloat16, ReduceOp::kSum, {0x7FC0, 0x4040}, 0x7FC0},
  };
  Group group(2);
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    for (const TypeCase& each : cases) {
      std::uint64_t value = each.ranks[static_cast<std::size_t>(rank)];
      engine->wait(engine->post_all_reduce(bytes_of(&value), 1, each.type, each.op), kTimeout);
      std::uint64_t expected = each.expected;
      if (std::memcmp(&value, &expected, element_size(each.type)) != 0) {
        throw Error(str(data_type_name(each.type), ": got ", value, ", expected ", expected));
      }
    }
    engine->wait(engine->post_barrier(), kTimeout);
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(ShmEngine, BroadcastsFromEveryRoot) {
  constexpr int kSize = 3;
  Group group(kSize, {.slot_bytes = 256});
  const auto errors = run_threads(kSize, [&](int rank) {
    auto engine = group.engine(rank);
    auto shared = engine->allocate(1000, kTimeout);
    std::vector<std::byte> own(1000);
    for (int root = 0; root < kSize; ++root) {
      for (std::byte* data : {own.data(), shared.get()}) {
        std::memset(data, rank * 10 + root, 1000);
        engine->wait(engine->post_broadcast(data, 1000, root), kTimeout);
        for (int i = 0; i < 1000; ++i) {
          if (data[i] != static_cast<std::byte>(root * 11)) throw Error("wrong byte");
        }
      }
    }
    engine->wait(engine->post_barrier(), kTimeout);
  });
  EXPECT_EQ(errors, no_errors(kSize));
}

// More operations in flight than the ring has entries, of mixed kinds, completed in any order.
TEST(ShmEngine, KeepsManyOperationsInFlight) {
  constexpr int kSize = 2;
  constexpr int kOperations = 100;
  Group group(kSize, {.slot_bytes = 128});
  const auto errors = run_threads(kSize, [&](int rank) {
    auto engine = group.engine(rank);
    auto shared = engine->allocate(kOperations * 64 * sizeof(float), kTimeout);
    std::vector<float> own(kOperations * 64);
    std::vector<Engine::Ticket> tickets;
    for (int i = 0; i < kOperations; ++i) {
      float* base = i % 2 == 0 ? own.data() : reinterpret_cast<float*>(shared.get());
      float* data = base + i * 64;
      std::fill_n(data, 64, static_cast<float>(i * (rank + 1)));
      tickets.push_back(engine->post_all_reduce(bytes_of(data), 64, DataType::kFloat32, ReduceOp::kSum));
    }
    for (int i = kOperations; i-- > 0;) {
      engine->wait(tickets[static_cast<std::size_t>(i)], kTimeout);
      const float* base = i % 2 == 0 ? own.data() : reinterpret_cast<float*>(shared.get());
      if (base[i * 64 + 63] != static_cast<float>(3 * i)) throw Error(str("operation ", i));
    }
    engine->wait(engine->post_barrier(), kTimeout);
  });
  EXPECT_EQ(errors, no_errors(kSize));
}

TEST(ShmEngine, NamesBothSidesOfADisagreement) {
  Group group(2);
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    std::vector<float> mine(4);
    const auto ticket = rank == 0 ? engine->post_broadcast(bytes_of(mine.data()), 16, 0)
                                  : engine->post_all_reduce(bytes_of(mine.data()), 4,
                                                            DataType::kFloat32, ReduceOp::kSum);
    engine->wait(ticket, kTimeout);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("disagree at operation 0"));
    EXPECT_THAT(error, HasSubstr("broadcast[16 bytes, root 0]"));
    EXPECT_THAT(error, HasSubstr("all_reduce[float32, 4, sum]"));
  }
}

TEST(ShmEngine, ChecksTheSizesOfAnAllocation) {
  Group group(2);
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    engine->allocate(rank == 0 ? 100 : 100000, std::chrono::seconds(5));
  });
  EXPECT_THAT(errors[1], HasSubstr("rank 1 asked for 100000 bytes"));
  EXPECT_NE(errors[0], "");
}

TEST(ShmEngine, TimesOutAndNamesTheRankAndTheOperation) {
  Group group(2);
  auto waiting = group.engine(0);
  auto absent = group.engine(1);
  float value = 1;
  const auto ticket = waiting->post_all_reduce(bytes_of(&value), 1, DataType::kFloat32, ReduceOp::kSum);
  const auto start = Clock::now();
  try {
    waiting->wait(ticket, std::chrono::milliseconds(100));
    FAIL() << "no TimeoutError";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("waited 0.1 s in all_reduce[float32, 1, sum] (operation 0)"));
    EXPECT_THAT(error.what(), HasSubstr("for rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("has called nothing yet"));
  }
  EXPECT_LT(seconds_since(start), 2);
  EXPECT_THROW(absent->post_barrier(), CommError) << "the group has ended for all ranks";
}

TEST(ShmEngine, AbortWakesSleepersAndTheFirstReasonWins) {
  Group group(3, {.spin = std::chrono::microseconds(0)});
  const auto errors = run_threads(3, [&](int rank) {
    auto engine = group.engine(rank);
    if (rank == 2) {
      engine->abort("the data are bad");
      engine->abort("a later reason");
    }
    engine->wait(engine->post_barrier(), kTimeout);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("the data are bad"));
  EXPECT_THAT(errors[0], HasSubstr("rank 2 ended the group"));
}

TEST(ShmEngine, TellsWhenAPeerLeft) {
  Group group(2, {.spin = std::chrono::microseconds(0)});
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    if (rank == 1) return;
    engine->wait(engine->post_barrier(), kTimeout);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 left the group while rank 0 was in barrier"));
}

TEST(ShmEngine, AllocatesZeroedSymmetricMemoryAgainAndAgain) {
  Group group(2);
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    for (int i = 0; i < 50; ++i) {
      auto shared = engine->allocate(10000, kTimeout);
      auto* data = reinterpret_cast<std::int32_t*>(shared.get());
      if (data[2499] != 0) throw Error("not zeroed");
      data[2499] = rank + 1;
      engine->wait(engine->post_all_reduce(shared.get(), 2500, DataType::kInt32, ReduceOp::kSum), kTimeout);
      if (data[2499] != 3) throw Error("wrong sum");
      engine->wait(engine->post_barrier(), kTimeout);
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

// --- Processes -----------------------------------------------------------------------------------

TEST(ShmEngineProcesses, ReduceThroughOneSegment) {
  Group group(4, {.spin = std::chrono::microseconds(0)});
  const SegmentAddress address = group.control->address();
  const auto errors = run_processes(4, [&](int rank) {
    auto control = Segment::open(address);  // a mapping of its own, by /proc
    Engine engine(control, rank, 4, group.options);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::int64_t> data(100, rank + round);
      engine.wait(engine.post_all_reduce(bytes_of(data.data()), 100, DataType::kInt64, ReduceOp::kSum), kTimeout);
      if (data[99] != 6 + 4 * round) throw Error(str("round ", round, ": ", data[99]));
    }
    engine.wait(engine.post_barrier(), kTimeout);
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST(ShmEngineProcesses, NameAKilledPeerWithinTwoSeconds) {
  Group group(3);
  const auto start = Clock::now();
  const auto errors = run_processes(3, [&](int rank) {
    auto engine = group.engine(rank);
    // Everybody's process number goes round first, as the handshake does it.
    std::vector<std::int32_t> pids(3);
    pids[static_cast<std::size_t>(rank)] = getpid();
    engine->wait(engine->post_all_reduce(bytes_of(pids.data()), 3, DataType::kInt32, ReduceOp::kSum), kTimeout);
    engine->watch({pids.begin(), pids.end()});
    engine->wait(engine->post_barrier(), kTimeout);
    if (rank == 1) raise(SIGKILL);
    engine->wait(engine->post_barrier(), kTimeout);
  });
  EXPECT_LT(seconds_since(start), 2);
  EXPECT_EQ(errors[1], "killed by signal 9");
  for (int rank : {0, 2}) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr("rank 1 (process "));
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr("died while rank "));
  }
}

TEST(Segment, HasNoNameAndRefusesForeignAddresses) {
  auto segment = Segment::create(10000);
  EXPECT_EQ(segment->bytes() % 4096, 0U);
  const SegmentAddress address = segment->address();
  // Nobody but its owner may open it, and it is in no directory.
  struct stat info {};
  ASSERT_EQ(fstat(address.fd, &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(info.st_nlink, 0U);
  // Its size is sealed.
  EXPECT_NE(ftruncate(address.fd, 0), 0);
  const auto errors = run_processes(1, [&](int) {
    std::string tried;
    for (const SegmentAddress& wrong :
         {SegmentAddress{address.pid, address.fd, address.bytes + 4096},  // another size
          SegmentAddress{address.pid, 0, address.bytes},                  // a terminal or a pipe
          SegmentAddress{999999999, 3, address.bytes}}) {                 // nobody
      try {
        Segment::open(wrong);
        throw Error("opened");
      } catch (const CommError&) {
        tried += "x";
      }
    }
    auto good = Segment::open(address);
    good->data()[9999] = std::byte{42};
    if (tried != "xxx") throw Error(tried);
  });
  EXPECT_EQ(errors, no_errors(1));
  EXPECT_EQ(segment->data()[9999], std::byte{42});
  segment->close_descriptor();
  EXPECT_THROW(Segment::open(address), CommError) << "nobody can join once it is closed";
}

TEST(Segment, IsOpenToNoOtherUser) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  auto segment = Segment::create(4096);
  const SegmentAddress address = segment->address();
  const auto errors = run_processes(1, [&](int) {
    if (setgid(65534) != 0 || setuid(65534) != 0) throw Error("cannot become nobody");
    Segment::open(address);
  });
  EXPECT_THAT(errors[0], HasSubstr("is not a segment of this job"));
}

}  // namespace
}  // namespace lockstep::shm
