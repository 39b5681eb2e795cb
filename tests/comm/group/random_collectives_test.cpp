// Random programs: collectives and messages of random kind, type and size in overlapping groups,
// several in flight, with random delays, compared with a single-process computation. A seed
// identifies a program.
//
// LOCKSTEP_RANDOM_SECONDS sets the duration (default 3), LOCKSTEP_RANDOM_SEED the first seed
// (default 1).
#include <gtest/gtest.h>
#include <sched.h>

#include <iostream>
#include <list>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/shm_group.h>
#include <tests/comm/group/collective_oracle.h>
#include <tests/support/ranks.h>

namespace lockstep::shm {
namespace {

using namespace testing_support;
using Random = std::mt19937_64;

std::size_t upto(Random& random, std::size_t most) { return random() % (most + 1); }

// All ranks of a program make the same calls because their generators have the same state.
struct Program {
  int size;
  EngineOptions options;
  std::vector<std::vector<int>> groups;  // world ranks of each group
};

Program random_program(Random& random) {
  Program program{.size = 2 + static_cast<int>(upto(random, 4)), .options = {}, .groups = {}};
  program.options.slot_bytes = std::size_t{1024} << upto(random, 8);
  program.options.small_bytes = upto(random, 2) == 0 ? 0 : upto(random, program.options.slot_bytes);
  std::vector<int> everybody(static_cast<std::size_t>(program.size));
  for (int i = 0; i < program.size; ++i) everybody[i] = i;
  program.groups.push_back(everybody);
  for (int i = 0; i < 2; ++i) {
    std::shuffle(everybody.begin(), everybody.end(), random);
    program.groups.push_back(
        {everybody.begin(), everybody.begin() + 2 + upto(random, program.size - 2)});
  }
  return program;
}

CallDescription random_call(Random& random, int size) {
  CallDescription call;
  call.kind = static_cast<CallKind>(upto(random, static_cast<int>(CallKind::kAllToAll)));
  call.type =
      static_cast<detail::DataType>(upto(random, static_cast<int>(detail::DataType::kBool)));
  call.op.kind = static_cast<ReduceOp::Kind>(upto(random, 8));
  if (!comm::why_not_reducible(call.type, call.op).empty()) call.op = ReduceOp::kSum;
  call.root = static_cast<int>(upto(random, size - 1));
  call.count = upto(random, (std::size_t{1} << upto(random, 16)) - 1);
  if (call.kind == CallKind::kBarrier) call = {};
  return call;
}

struct InFlight {
  CallDescription call;
  std::uint64_t seed;
  CallBuffers memory;
  Engine* engine;
  Engine::Ticket ticket;
};

struct Message {
  Bytes bytes;
  Bytes wanted;  // expected contents of a receive
  std::shared_ptr<Transfer> transfer;
  Engine* engine;
};

class RandomRank {
 public:
  RandomRank(const Program& program, const std::vector<ShmGroup>& groups, int rank,
             std::uint64_t seed)
      : seed_(seed), delays_(seed * 31 + static_cast<std::uint64_t>(rank)) {
    const auto progress = std::make_shared<comm::Progress>();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& members = program.groups[g];
      const auto found = std::find(members.begin(), members.end(), rank);
      places_.push_back(found == members.end() ? -1 : static_cast<int>(found - members.begin()));
      engines_.push_back(places_[g] < 0 ? nullptr : groups[g].engine(places_[g], progress));
      sizes_.push_back(static_cast<int>(members.size()));
    }
  }

  void run(Random shared, int steps) {
    for (int step = 0; step < steps; ++step) {
      const std::size_t g = upto(shared, engines_.size() - 1);
      const std::uint64_t seed = shared();
      if (upto(shared, 3) == 0) {
        message(g, shared, seed);
      } else {
        collective(g, random_call(shared, sizes_[g]), seed, static_cast<std::uint64_t>(step));
      }
      for (std::size_t i = upto(delays_, 20); i-- > 18;) sched_yield();
      while (calls_.size() + messages_.size() > 6) finish_one();
    }
    while (!calls_.empty() || !messages_.empty()) finish_one();
    engines_[0]->wait(engines_[0]->post({.kind = CallKind::kBarrier}, ~seed_, nullptr, nullptr),
                      kTimeout);
  }

 private:
  void collective(std::size_t g, const CallDescription& call, std::uint64_t seed,
                  std::uint64_t number) {
    if (!engines_[g]) return;
    InFlight flight{call, seed, buffers(call, places_[g], sizes_[g], seed), engines_[g].get(), 0};
    const std::byte* input =
        is_in_place(call.kind) ? flight.memory.output_data() : flight.memory.input_data();
    // Some ranks make a blocking call, which takes a different path in the engine for small sizes.
    if (upto(delays_, 3) == 0) {
      flight.engine->run(call, number, input, flight.memory.output_data(), kTimeout, [] {});
      return require_expected(call, flight.memory.output, places_[g], sizes_[g], seed);
    }
    flight.ticket = flight.engine->post(call, number, input, flight.memory.output_data());
    calls_.push_back(std::move(flight));
  }

  void message(std::size_t g, Random& shared, std::uint64_t seed) {
    const int from = static_cast<int>(upto(shared, sizes_[g] - 1));
    const int to = (from + 1 + static_cast<int>(upto(shared, sizes_[g] - 2))) % sizes_[g];
    const int tag = static_cast<int>(upto(shared, 2));
    const std::size_t bytes = upto(shared, (std::size_t{1} << upto(shared, 20)) - 1);
    const bool sends = places_[g] == from;
    if (!engines_[g] || (!sends && places_[g] != to)) return;
    const Bytes text = values(detail::DataType::kByte, bytes, seed);
    messages_.push_back({sends ? text : Bytes(bytes), text, nullptr, engines_[g].get()});
    Message& mine = messages_.back();
    mine.transfer = mine.engine->post({.kind = sends ? CallKind::kSend : CallKind::kRecv,
                                       .root = sends ? to : from,
                                       .count = bytes},
                                      tag, mine.bytes.data());
  }

  // Picks in random order, different on each rank.
  void finish_one() {
    const std::size_t which = upto(delays_, calls_.size() + messages_.size() - 1);
    if (which < calls_.size()) {
      InFlight flight = std::move(calls_[which]);
      calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(which));
      flight.engine->wait(flight.ticket, kTimeout);
      const std::size_t g = group_of(flight.engine);
      require_expected(flight.call, flight.memory.output, places_[g], sizes_[g], flight.seed);
      return;
    }
    const auto found =
        std::next(messages_.begin(), static_cast<std::ptrdiff_t>(which - calls_.size()));
    found->engine->wait(*found->transfer, kTimeout);
    if (found->bytes != found->wanted) throw Error("a message has wrong bytes");
    messages_.erase(found);
  }

  std::size_t group_of(const Engine* engine) const {
    std::size_t g = 0;
    while (engines_[g].get() != engine) ++g;
    return g;
  }

  const std::uint64_t seed_;
  Random delays_;
  std::vector<std::shared_ptr<Engine>> engines_;
  std::vector<int> places_;
  std::vector<int> sizes_;
  std::vector<InFlight> calls_;
  std::list<Message> messages_;  // a list, because the engine holds addresses
};

TEST(RandomCollectives, GiveWhatOneProcessComputes) {
  const Deadline deadline(
      std::chrono::seconds(environment_integer("LOCKSTEP_RANDOM_SECONDS").value_or(3)));
  auto seed = static_cast<std::uint64_t>(environment_integer("LOCKSTEP_RANDOM_SEED").value_or(1));
  int programs = 0;
  for (; !deadline.expired(); ++seed, ++programs) {
    Random random(seed);
    const Program program = random_program(random);
    std::vector<ShmGroup> groups;
    for (const auto& members : program.groups) {
      groups.emplace_back(static_cast<int>(members.size()), program.options);
    }
    const auto errors = run_threads(
        program.size, [&](int rank) { RandomRank(program, groups, rank, seed).run(random, 60); });
    ASSERT_EQ(errors, no_errors(program.size)) << "LOCKSTEP_RANDOM_SEED=" << seed;
  }
  std::cout << programs << " random programs of 60 operations\n";
}

}  // namespace
}  // namespace lockstep::shm
