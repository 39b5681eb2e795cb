// The shared-memory engine with ranks as threads (for ThreadSanitizer) and as processes.
#include <lockstep/comm/backends/shm/engine.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <lockstep/comm/waiting/progress.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/shm_group.h>
#include <tests/support/messages.h>
#include <tests/support/ranks.h>

namespace lockstep::shm {
namespace {

using ::testing::HasSubstr;
using testing_support::kTimeout;
using testing_support::no_errors;
using testing_support::run_processes;
using testing_support::run_threads;
using Group = testing_support::ShmGroup;

template <class T>
std::byte* bytes_of(T* data) {
  return reinterpret_cast<std::byte*>(data);
}

Engine::Ticket post_all_reduce(Engine& engine, std::byte* data, std::size_t count,
                               detail::DataType type, std::uint64_t number = 0) {
  return engine.post({.kind = CallKind::kAllReduce, .type = type, .count = count}, number, data,
                     data);
}

Engine::Ticket post_barrier(Engine& engine, std::uint64_t number = 0) {
  return engine.post({.kind = CallKind::kBarrier}, number, nullptr, nullptr);
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
      tickets.push_back(post_all_reduce(*engine, bytes_of(data), 64, detail::DataType::kFloat32));
    }
    for (int i = kOperations; i-- > 0;) {
      engine->wait(tickets[static_cast<std::size_t>(i)], kTimeout);
      const float* base = i % 2 == 0 ? own.data() : reinterpret_cast<float*>(shared.get());
      if (base[i * 64 + 63] != static_cast<float>(3 * i)) throw Error(str("operation ", i));
    }
    engine->wait(post_barrier(*engine), kTimeout);
  });
  EXPECT_EQ(errors, no_errors(kSize));
}

// The spinning time applies to each short wait, not to all of them together. Otherwise a long
// operation would sleep at every chunk.
TEST(ShmEngine, DoesNotSleepAtEveryChunkOfALongOperation) {
  constexpr std::size_t kChunks = 4096;
  constexpr std::size_t kSlot = 4096;
  Group group(2, {.slot_bytes = kSlot});
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    std::vector<float> mine(kChunks * kSlot / sizeof(float), 1.0F);
    constexpr std::uint64_t kTrials = 5;  // beside a busy program a rank sleeps more often
    std::size_t fewest = kChunks;
    for (std::uint64_t number = 0; number < kTrials; ++number) {
      rusage before{};
      rusage after{};
      getrusage(RUSAGE_THREAD, &before);
      engine->wait(post_all_reduce(*engine, bytes_of(mine.data()), mine.size(),
                                   detail::DataType::kFloat32, number),
                   kTimeout);
      getrusage(RUSAGE_THREAD, &after);
      fewest = std::min(fewest, static_cast<std::size_t>(after.ru_nvcsw - before.ru_nvcsw));
    }
    if (fewest > kChunks / 8) throw Error(str("slept ", fewest, " times in ", kChunks, " chunks"));
    if (mine.back() != 1 << kTrials) throw Error("wrong sum");
    engine->wait(post_barrier(*engine, kTrials), kTimeout);
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Another group's operation, whose end changes no word of memory. It takes a hundred looks.
struct Unannounced final : comm::Progressing {
  bool advance() noexcept override {
    if (++looks == 100) end();
    return false;
  }
  std::chrono::nanoseconds longest_sleep() override { return std::chrono::microseconds(100); }
  std::atomic<int> looks = 0;
  std::function<void()> end;
};

double seconds_of_a_hundred_looks() {
  Group group(2);
  const auto progress = std::make_shared<comm::Progress>();
  const auto other = std::make_shared<Unannounced>();
  const auto engine = group.engine(0, progress);
  const auto peer = group.engine(1);
  other->end = [&] { post_barrier(*peer); };
  progress->add(other);
  const auto start = Clock::now();
  engine->wait(post_barrier(*engine), kTimeout);
  const double seconds = seconds_since(start);
  EXPECT_GE(other->looks, 100);
  return seconds;
}

// A sleep of 20 ms before each look would take about a second.
TEST(ShmEngineTiming, AWaitLooksAtOtherGroupsAsOftenAsTheyAsk) {
  double least = seconds_of_a_hundred_looks();
  for (int again = 0; again < 4 && least >= 0.4; ++again) {  // on a busy machine
    least = std::min(least, seconds_of_a_hundred_looks());
  }
  EXPECT_LT(least, 0.4);
}

TEST(ProgressTiming, APauseIsNotLongerThanAMemberAllows) {
  comm::Progress progress;
  const auto member = std::make_shared<Unannounced>();
  member->end = [] {};
  progress.add(member);
  const auto start = Clock::now();
  for (int i = 0; i < 10; ++i) progress.pause(kTimeout, [] { return false; });
  EXPECT_LT(Clock::now() - start, kTimeout);
}

// Another group's operation, which sees the words on which a thread is about to sleep.
struct WordCounter final : comm::Progressing {
  bool advance() noexcept override { return false; }
  void awaited_words(std::vector<comm::AwaitedWord>& words) override {
    most = std::max(most, words.size());
    if (++sleeps == 20) end();
  }
  std::chrono::nanoseconds longest_sleep() override { return std::chrono::microseconds(100); }
  std::size_t most = 0;
  int sleeps = 0;
  std::function<void()> end;
};

// A word of an earlier sleep that has changed since would end each later sleep at once.
TEST(ShmEngine, SleepsOnlyOnTheWordsThatItAwaitsNow) {
  Group group(2);
  const auto progress = std::make_shared<comm::Progress>();
  const auto counter = std::make_shared<WordCounter>();
  const auto engine = group.engine(0, progress);
  const auto peer = group.engine(1);
  progress->add(counter);
  for (std::uint64_t number = 0; number < 2; ++number) {
    counter->sleeps = 0;
    counter->end = [&] { post_barrier(*peer, number); };
    engine->wait(post_barrier(*engine, number), kTimeout);
    EXPECT_GE(counter->sleeps, 20);
    EXPECT_EQ(counter->most, 1U) << "the word of the peer that has not arrived";
  }
}

// The sum of a few numbers takes a path of its own if the peers have arrived. One rank takes it;
// the others take the usual path, which must give the same bits.
TEST(ShmEngine, SumsAFewNumbersAsItSumsMany) {
  constexpr std::size_t kMost = Arrival::kInlineBytes / sizeof(float);
  for (const std::size_t size : {1U, 2U, 3U, 5U}) {
    Group group(static_cast<int>(size), {.slot_bytes = 4096, .small_bytes = 512});
    group.options.patience.spin = std::chrono::microseconds(1);
    std::vector<std::shared_ptr<Engine>> engines;
    for (std::size_t r = 0; r < size; ++r) engines.push_back(group.engine(static_cast<int>(r)));
    std::uint64_t number = 0;
    for (std::uint32_t round = 0; round < kRing;
         ++round) {  // each place of the ring, several times
      for (const std::size_t count :
           {std::size_t{1}, std::size_t{2}, kMost - 1, kMost, kMost + 1}) {
        const std::size_t runner = number % size;
        std::vector<std::vector<float>> data(size, std::vector<float>(count));
        std::vector<double> wanted(count);
        for (std::size_t r = 0; r < size; ++r) {
          for (std::size_t i = 0; i < count; ++i) {
            data[r][i] = 0.1F * static_cast<float>((r + 1) * (i + 1) + number);
            wanted[i] += static_cast<double>(data[r][i]);
          }
        }
        std::vector<Engine::Ticket> tickets(size);
        for (std::size_t r = 0; r < size; ++r) {
          if (r == runner) continue;
          tickets[r] = post_all_reduce(*engines[r], bytes_of(data[r].data()), count,
                                       detail::DataType::kFloat32, number);
        }
        int meanwhile = 0;
        std::byte* const own = bytes_of(data[runner].data());
        engines[runner]->run(
            {.kind = CallKind::kAllReduce, .type = detail::DataType::kFloat32, .count = count},
            number, own, own, kTimeout, [&] { ++meanwhile; });
        EXPECT_EQ(meanwhile, 1);
        for (std::size_t r = 0; r < size; ++r) {
          if (r != runner) engines[r]->wait(tickets[r], kTimeout);
          ASSERT_EQ(data[r], data[0]) << count << " of " << size << " ranks, run by " << runner;
        }
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_NEAR(data[0][i], wanted[i], 1e-6 * wanted[i]) << i << " of " << count;
        }
        ++number;
      }
    }
  }
}

TEST(ShmEngine, NamesBothSidesOfADisagreementAboutAFewNumbers) {
  std::vector<float> four(4), five(5);
  Group group(2);
  group.options.patience.spin = std::chrono::microseconds(1);
  const auto engine = group.engine(0), peer = group.engine(1);
  const auto ticket =
      post_all_reduce(*peer, bytes_of(five.data()), five.size(), detail::DataType::kFloat32);
  EXPECT_THAT(testing_support::message_of<CommError>([&] {
                engine->run({.kind = CallKind::kAllReduce,
                             .type = detail::DataType::kFloat32,
                             .count = four.size()},
                            0, bytes_of(four.data()), bytes_of(four.data()), kTimeout, [] {});
              }),
              HasSubstr("the ranks call different operations: rank 0 called all_reduce[float32, 4] "
                        "as number 0, rank 1 called all_reduce[float32, 5] as number 0"));
  EXPECT_THAT(testing_support::message_of<CommError>([&] { peer->wait(ticket, kTimeout); }),
              HasSubstr("the ranks call different operations: "));
}

TEST(ShmEngine, TimesOutInASumOfAFewNumbers) {
  std::vector<float> four(4);
  Group group(2);
  group.options.patience.spin = std::chrono::microseconds(1);
  const auto engine = group.engine(0), absent = group.engine(1);
  EXPECT_THAT(testing_support::message_of<TimeoutError>([&] {
                engine->run({.kind = CallKind::kAllReduce,
                             .type = detail::DataType::kFloat32,
                             .count = four.size()},
                            0, bytes_of(four.data()), bytes_of(four.data()),
                            std::chrono::milliseconds(20), [] {});
              }),
              HasSubstr("all_reduce[float32, 4]"));
}

TEST(ShmEngine, NamesBothSidesOfADisagreement) {
  Group group(2);
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    std::vector<float> mine(4);
    const auto ticket =
        rank == 0 ? engine->post({.kind = CallKind::kBroadcast, .root = 0, .count = 16}, 0,
                                 bytes_of(mine.data()), bytes_of(mine.data()))
                  : post_all_reduce(*engine, bytes_of(mine.data()), 4, detail::DataType::kFloat32);
    engine->wait(ticket, kTimeout);
    // The root of a broadcast waits for no rank, so it detects the mismatch only now.
    engine->wait(post_barrier(*engine, 1), kTimeout);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("the ranks call different operations: "));
    EXPECT_THAT(error, HasSubstr("rank 0 called broadcast[bytes, 16, root 0] as number 0"));
    EXPECT_THAT(error, HasSubstr("rank 1 called all_reduce[float32, 4] as number 0"));
  }
}

// The root of a broadcast waits for no rank, so two roots do not detect the mismatch until their
// next call.
TEST(ShmEngine, RemembersADisagreementThatNobodyCouldSee) {
  Group group(2);
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    std::vector<float> mine(4);
    std::byte* const data = bytes_of(mine.data());
    engine->wait(
        engine->post({.kind = CallKind::kBroadcast, .root = rank, .count = 16}, 0, data, data),
        kTimeout);
    engine->wait(post_all_reduce(*engine, data, 4, detail::DataType::kFloat32, 1), kTimeout);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 0 called broadcast[bytes, 16, root 0] as number 0"));
    EXPECT_THAT(error, HasSubstr("rank 1 called broadcast[bytes, 16, root 1] as number 0"));
  }
}

// What a rank gives to an operation on 2000 bytes.
enum class Given { kOwnMemory, kBegin, kFurtherOn, kOtherAllocation, kOwnPiece };

struct Places {
  CallKind kind;
  Given first, second;
  bool agree;
};

// A rank reads its peers' part of symmetric memory at the place of its own.
TEST(ShmEngine, RanksUseTheSamePlaceOfSymmetricMemory) {
  constexpr std::size_t kBytes = 2000;
  const Places cases[] = {
      {CallKind::kAllReduce, Given::kBegin, Given::kBegin, true},
      {CallKind::kAllReduce, Given::kFurtherOn, Given::kFurtherOn, true},
      {CallKind::kAllReduce, Given::kBegin, Given::kFurtherOn, false},
      {CallKind::kAllReduce, Given::kFurtherOn, Given::kBegin, false},
      {CallKind::kAllReduce, Given::kBegin, Given::kOtherAllocation, false},
      {CallKind::kAllReduce, Given::kBegin, Given::kOwnMemory, false},
      {CallKind::kAllReduce, Given::kOwnMemory, Given::kOwnMemory, true},
      {CallKind::kBroadcast, Given::kBegin, Given::kFurtherOn, false},
      {CallKind::kAllGather, Given::kBegin, Given::kBegin, true},
      {CallKind::kAllGather, Given::kOwnPiece, Given::kOwnPiece, true},
      {CallKind::kAllGather, Given::kOwnPiece, Given::kOtherAllocation, false},
  };
  for (const Places& each : cases) {
    SCOPED_TRACE(str(call_name(each.kind), ' ', static_cast<int>(each.first), ' ',
                     static_cast<int>(each.second)));
    Group group(2);
    const auto errors = run_threads(2, [&](int rank) {
      auto engine = group.engine(rank);
      const auto memory = engine->allocate(4 * kBytes, kTimeout);
      const auto other = engine->allocate(4 * kBytes, kTimeout);
      std::vector<std::byte> own(4 * kBytes);
      const Given given = rank == 0 ? each.first : each.second;
      std::byte* const output =
          each.kind == CallKind::kAllGather ? memory.get() + 2 * kBytes : nullptr;
      std::byte* const input = given == Given::kOwnMemory         ? own.data()
                               : given == Given::kFurtherOn       ? memory.get() + 64
                               : given == Given::kOtherAllocation ? other.get()
                               : given == Given::kOwnPiece
                                   ? output + static_cast<std::size_t>(rank) * kBytes
                                   : memory.get();
      std::fill_n(input, kBytes, std::byte{static_cast<unsigned char>(rank + 1)});
      const CallDescription call{
          .kind = each.kind, .type = detail::DataType::kUInt8, .root = 0, .count = kBytes};
      const auto ticket = engine->post(call, 0, input, output == nullptr ? input : output);
      engine->wait(ticket, kTimeout);
      engine->wait(post_barrier(*engine, 1), kTimeout);
      if (each.kind == CallKind::kAllReduce && input[kBytes - 1] != std::byte{3}) {
        throw Error("wrong sum");
      }
      if (output != nullptr && (output[0] != std::byte{1} || output[kBytes] != std::byte{2})) {
        throw Error("wrong pieces");
      }
      engine->wait(post_barrier(*engine, 2), kTimeout);
    });
    if (each.agree) {
      EXPECT_EQ(errors, no_errors(2));
      continue;
    }
    for (const std::string& error : errors) {
      EXPECT_THAT(error, HasSubstr("the ranks call different operations: "));
      EXPECT_THAT(error, HasSubstr(str("rank 0 called ", call_name(each.kind))));
      EXPECT_THAT(error, HasSubstr(str("rank 1 called ", call_name(each.kind))));
      EXPECT_THAT(error, HasSubstr(" in symmetric memory as number 0"));
    }
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

// The size exceeds the address space, so that no memory is touched whatever the engine does.
TEST(ShmEngine, RefusesToAllocateMoreThanTheHostHasLeft) {
  Group group(2);
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    EXPECT_THAT(testing_support::message_of<ConfigError>(
                    [&] { engine->allocate(std::size_t{1} << 50, std::chrono::seconds(5)); }),
                ::testing::StartsWith(str("rank ", rank,
                                          ": allocate: 1125899906842624 bytes for each of the ",
                                          "2 ranks of this host, which has ")));
    engine->allocate(100, std::chrono::seconds(5));  // the group is still usable
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(ShmEngine, TimesOutAndNamesTheRankAndTheOperation) {
  Group group(2);
  auto waiting = group.engine(0);
  auto absent = group.engine(1);
  float value = 1;
  const auto ticket = post_all_reduce(*waiting, bytes_of(&value), 1, detail::DataType::kFloat32);
  const auto start = Clock::now();
  try {
    waiting->wait(ticket, std::chrono::milliseconds(100));
    FAIL() << "no TimeoutError";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("waited 0.1 s in all_reduce[float32, 1] (operation 0)"));
    EXPECT_THAT(error.what(), HasSubstr("for rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("has called nothing yet"));
  }
  EXPECT_LT(seconds_since(start), 15);
  EXPECT_THROW(post_barrier(*absent), CommError) << "the group has ended for all ranks";
}

TEST(ShmEngine, AbortWakesSleepersAndTheFirstReasonWins) {
  Group group(3);
  const auto errors = run_threads(3, [&](int rank) {
    auto engine = group.engine(rank);
    if (rank == 2) {
      engine->abort("the data are bad");
      engine->abort("a later reason");
    }
    engine->wait(post_barrier(*engine), kTimeout);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("the data are bad"));
  EXPECT_THAT(errors[0], HasSubstr("rank 2 ended the group"));
}

// The peer has arrived before the end, so that the sum could still be computed.
TEST(ShmEngine, StartsNothingInAGroupThatHasEnded) {
  for (const std::size_t count : {4U, 5000U}) {
    std::vector<float> mine(count, 1.0F), theirs(count, 2.0F);
    Group group(2);
    group.options.patience.spin = std::chrono::microseconds(1);
    const auto engine = group.engine(0), peer = group.engine(1);
    std::byte* const data = bytes_of(mine.data());
    const CallDescription sum{
        .kind = CallKind::kAllReduce, .type = detail::DataType::kFloat32, .count = count};
    const CallDescription send{.kind = CallKind::kSend, .root = 1, .count = 4};
    post_all_reduce(*peer, bytes_of(theirs.data()), count, detail::DataType::kFloat32);
    peer->abort("the data are bad");
    bool has_begun = false;
    const std::function<void()> calls[] = {
        [&] { engine->run(sum, 0, data, data, kTimeout, [&] { has_begun = true; }); },
        [&] { engine->post(sum, 0, data, data); },
        [&] { engine->post(send, 0, data); },
        [&] { engine->allocate(100, kTimeout); },
        [&] { engine->check(); },
    };
    for (const auto& call : calls) {
      EXPECT_THAT(testing_support::message_of<CommError>(call),
                  HasSubstr("rank 1 ended the group: the data are bad"));
    }
    EXPECT_FALSE(has_begun);
    EXPECT_EQ(mine, std::vector<float>(count, 1.0F));
  }
}

TEST(ShmEngine, TellsWhenAPeerLeft) {
  Group group(2);
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    if (rank == 1) return;
    engine->wait(post_barrier(*engine), kTimeout);
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
      engine->wait(post_all_reduce(*engine, shared.get(), 2500, detail::DataType::kInt32),
                   kTimeout);
      if (data[2499] != 3) throw Error("wrong sum");
      engine->wait(post_barrier(*engine), kTimeout);
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

// --- Processes -----------------------------------------------------------------------------------

TEST(ShmEngineProcesses, ReduceThroughOneSegment) {
  Group group(4);
  const SegmentAddress address = group.control->address();
  const auto errors = run_processes(4, [&](int rank) {
    auto control = Segment::open(address);  // creates a separate mapping through /proc
    Engine engine(control, rank, 4, group.options);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::int64_t> data(100, rank + round);
      engine.wait(post_all_reduce(engine, bytes_of(data.data()), 100, detail::DataType::kInt64),
                  kTimeout);
      if (data[99] != 6 + 4 * round) throw Error(str("round ", round, ": ", data[99]));
    }
    engine.wait(post_barrier(engine), kTimeout);
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST(ShmEngineProcesses, NameAKilledPeerWithinTwoSeconds) {
  Group group(3);
  const auto start = Clock::now();
  const auto errors = run_processes(3, [&](int rank) {
    auto engine = group.engine(rank);
    // First exchange the process ids of all ranks, like the handshake.
    std::vector<std::int32_t> pids(3);
    pids[static_cast<std::size_t>(rank)] = getpid();
    engine->wait(post_all_reduce(*engine, bytes_of(pids.data()), 3, detail::DataType::kInt32),
                 kTimeout);
    engine->watch({pids.begin(), pids.end()});
    engine->wait(post_barrier(*engine), kTimeout);
    if (rank == 1) raise(SIGKILL);
    engine->wait(post_barrier(*engine), kTimeout);
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
  // Only its owner may open it, and it is in no directory.
  struct stat info{};
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
          SegmentAddress{999999999, 3, address.bytes}}) {                 // no such process
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
