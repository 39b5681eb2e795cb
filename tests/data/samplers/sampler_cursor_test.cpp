#include <lockstep/data/samplers/sampler_cursor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;

using Indices = std::vector<std::int64_t>;

// A different order for each epoch, without LibTorch: 0, 1, 2, ... rotated by the epoch; ranks take
// turns.
class TurnedSampler : public Sampler {
 public:
  TurnedSampler(std::int64_t size, int rank, int world_size, int seed = 0)
      : all_(size), rank_(rank), world_size_(world_size), seed_(seed) {}

  Indices indices(std::int64_t epoch) const override {
    Indices mine;
    for (std::int64_t i = rank_; i < all_; i += world_size_) {
      mine.push_back((i + epoch + seed_) % all_);
    }
    return mine;
  }
  std::int64_t size() const override { return (all_ - rank_ + world_size_ - 1) / world_size_; }
  std::string describe() const override { return "Turned(" + std::to_string(seed_) + ")"; }
  int world_size() const override { return world_size_; }
  std::int64_t shared_size() const override { return all_; }

 private:
  std::int64_t all_;
  int rank_;
  int world_size_;
  int seed_;
};

class UnnamedSampler : public Sampler {
 public:
  explicit UnnamedSampler(std::int64_t given, std::int64_t size) : given_(given), size_(size) {}
  Indices indices(std::int64_t) const override { return Indices(given_); }
  std::int64_t size() const override { return size_; }

 private:
  std::int64_t given_;
  std::int64_t size_;
};

Indices rest(SamplerCursor& cursor) {
  Indices indices;
  while (const std::optional<std::int64_t> index = cursor.next()) indices.push_back(*index);
  return indices;
}

TEST(SequentialSampler, GivesEveryIndexInOrder) {
  const SequentialSampler sampler(3);
  EXPECT_EQ(sampler.indices(0), (Indices{0, 1, 2}));
  EXPECT_EQ(sampler.indices(5), (Indices{0, 1, 2}));
  EXPECT_EQ(sampler.size(), 3);
  EXPECT_EQ(SequentialSampler(0).indices(0), Indices{});
  EXPECT_EQ(message_of<ConfigError>([] { SequentialSampler{-1}; }),
            "SequentialSampler: dataset_size must be at least 0, got -1");
}

TEST(SamplerCursor, WalksThroughOneEpochAfterTheOther) {
  SamplerCursor cursor(TurnedSampler(4, 0, 1));
  EXPECT_EQ(rest(cursor), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(cursor.next(), std::nullopt) << "the end of an epoch does not pass by itself";
  cursor.set_epoch(2);
  EXPECT_EQ(cursor.next(), 2);
  EXPECT_EQ(cursor.remaining(), 3);
  EXPECT_EQ(cursor.next(2), (Indices{3, 0}));
  EXPECT_EQ(cursor.next(2), (Indices{1}));
  EXPECT_EQ(cursor.next(2), Indices{});
  cursor.set_epoch(2);
  EXPECT_EQ(rest(cursor), (Indices{2, 3, 0, 1}));
}

TEST(SamplerCursor, GoesOnAtAnyIndexAsIfItHadNotStopped) {
  SamplerCursor whole(TurnedSampler(7, 0, 1));
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    for (std::int64_t stop = 0; stop <= 7; ++stop) {
      whole.set_epoch(epoch);
      for (std::int64_t i = 0; i < stop; ++i) whole.next();
      const auto saved = to_settings(whole.position());
      SamplerCursor resumed(TurnedSampler(7, 0, 1));
      resumed.next();  // what the sampler did before must not matter
      resumed.restore(sampler_position(saved));
      EXPECT_EQ(resumed.position(), whole.position());
      EXPECT_EQ(rest(resumed), rest(whole)) << "epoch " << epoch << " from " << stop;
    }
  }
}

// One rank's position serves all ranks of another world: together they give the rest of the epoch
// once.
TEST(SamplerCursor, AnotherNumberOfRanksSharesTheRest) {
  struct Case {
    std::int64_t size;
    int ranks;
    std::int64_t taken_by_each;
    int other_ranks;
  };
  const Case cases[] = {
      {12, 2, 3, 2}, {12, 2, 3, 3}, {12, 2, 3, 1},  {13, 4, 2, 8}, {13, 1, 12, 4},
      {11, 3, 2, 2}, {12, 4, 3, 5}, {11, 1, 11, 4}, {5, 2, 0, 3},  {2, 1, 0, 3},
  };
  for (const Case& c : cases) {
    SamplerCursor before(TurnedSampler(c.size, 0, c.ranks));
    before.set_epoch(3);
    for (std::int64_t i = 0; i < c.taken_by_each; ++i) ASSERT_TRUE(before.next());
    const Indices order = TurnedSampler(c.size, 0, 1).indices(3);
    std::vector<int> seen(c.size);
    for (int rank = 0; rank < c.other_ranks; ++rank) {
      SamplerCursor after(TurnedSampler(c.size, rank, c.other_ranks));
      after.restore(before.position());
      for (const std::int64_t index : rest(after)) ++seen.at(index);
    }
    const std::int64_t taken = c.taken_by_each * c.ranks;
    for (std::int64_t i = 0; i < c.size; ++i) {
      EXPECT_EQ(seen.at(order[i]), i < taken ? 0 : 1)
          << c.size << " indices, " << c.ranks << " ranks took " << c.taken_by_each << ", then "
          << c.other_ranks << " ranks, place " << i;
    }
  }
}

// The shares of an EvaluationSampler differ by one, so one rank may be at its end before another.
TEST(SamplerCursor, OneRanksPositionServesRanksWithAnotherShare) {
  for (const int saver : {0, 1}) {
    SamplerCursor cursor(EvaluationSampler(5, saver, 2));
    rest(cursor);
    Indices left;
    for (const int rank : {0, 1}) {
      SamplerCursor resumed(EvaluationSampler(5, rank, 2));
      resumed.restore(cursor.position());
      for (const std::int64_t index : rest(resumed)) left.push_back(index);
    }
    EXPECT_EQ(left, saver == 0 ? Indices{} : Indices{4});
  }
}

TEST(SamplerCursor, RefusesAPositionThatIsNotOfItsSampler) {
  struct Case {
    SamplerPosition position;
    const char* message;
  };
  const Case cases[] = {
      {{"Turned(2)", 0, 0}, "it is of Turned(2), this sampler is Turned(1)"},
      {{"Turned(1)", -1, 0}, "epoch -1 index 0 is not a place in Turned(1)"},
      {{"Turned(1)", 0, -2}, "epoch 0 index -2 is not a place in Turned(1)"},
      {{"Turned(1)", 4, 11}, "epoch 4 index 11 is not a place in Turned(1)"},
      {{"Turned(1)", 0, 5},
       "the 5 indices taken do not divide by the 2 ranks of Turned(1), which does not know the "
       "others' "
       "shares; go on with as many ranks as before, or from the beginning of an epoch"},
  };
  for (const Case& c : cases) {
    SamplerCursor cursor(TurnedSampler(10, 1, 2, 1));
    cursor.next();
    EXPECT_EQ(message_of<CheckpointError>([&] { cursor.restore(c.position); }),
              std::string("sampler position: ") + c.message);
    EXPECT_EQ(cursor.next(), 4) << "it must stay where it was";
  }
}

TEST(SamplerCursor, PassesOverIndices) {
  SamplerCursor cursor(TurnedSampler(9, 1, 2));
  cursor.set_epoch(1);
  cursor.skip(1);
  EXPECT_EQ(cursor.remaining(), 3);
  EXPECT_EQ(cursor.place(), 1);
  EXPECT_EQ(Indices(cursor.rest().begin(), cursor.rest().end()), (Indices{4, 6, 8}));
  EXPECT_EQ(cursor.next(), 4);
  cursor.skip(0);
  cursor.skip(2);
  EXPECT_EQ(cursor.next(), std::nullopt);
  EXPECT_EQ(cursor.position().taken, 8);
  EXPECT_EQ(message_of<ConfigError>([&] { cursor.skip(1); }),
            "SamplerCursor::skip: count must be from 0 to 0, got 1");
  cursor.restore({"Turned(0)", 1, 6});
  EXPECT_EQ(cursor.place(), 3);
  EXPECT_EQ(cursor.next(5), (Indices{8}));
}

TEST(Sampler, CountsHowOftenAnIndexCameBefore) {
  using Occurrences = std::vector<std::uint32_t>;
  EXPECT_EQ(occurrences_in(Indices{}), Occurrences{});
  EXPECT_EQ(occurrences_in(Indices{4, 0, 7}), Occurrences{}) << "none comes twice";
  EXPECT_EQ(occurrences_in(Indices{5, 5, 2, 5, 2}), (Occurrences{0, 1, 0, 2, 1}));
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  EXPECT_EQ(occurrences_in(Indices{kFar, 1, kFar}), (Occurrences{0, 0, 1}));
  EXPECT_EQ(occurrences_in(Indices{-1, -1}), (Occurrences{0, 1}));
}

class RepeatingSampler : public Sampler {
 public:
  Indices indices(std::int64_t) const override { return {1, 1, 0, 1, 0}; }
  std::int64_t size() const override { return 5; }
};

TEST(SamplerCursor, KeepsTheOccurrencesOfARestoredEpoch) {
  const std::vector<std::uint32_t> all = {0, 1, 0, 2, 1};
  for (std::int64_t taken = 0; taken <= 5; ++taken) {
    SamplerCursor skipped{RepeatingSampler()};
    skipped.skip(taken);
    SamplerCursor restored{RepeatingSampler()};
    restored.restore(skipped.position());
    for (SamplerCursor* cursor : {&skipped, &restored}) {
      const auto rest = cursor->occurrences();
      EXPECT_EQ(std::vector(rest.begin(), rest.end()), std::vector(all.begin() + taken, all.end()));
    }
  }
  EXPECT_TRUE(SamplerCursor(SequentialSampler(3)).occurrences().empty());
}

TEST(SamplerCursor, KnowsASamplerWithoutDescriptionByItsSize) {
  SamplerCursor cursor(UnnamedSampler(3, 3));
  EXPECT_THROW(cursor.restore(SamplerCursor(UnnamedSampler(4, 4)).position()), CheckpointError);
  EXPECT_NO_THROW(cursor.restore(SamplerCursor(UnnamedSampler(3, 3)).position()));
}

TEST(SamplerCursor, RefusesWhatItCannotWalkThrough) {
  SamplerCursor cursor(SequentialSampler(3));
  EXPECT_EQ(message_of<ConfigError>([&] { cursor.set_epoch(-1); }),
            "SamplerCursor::set_epoch: epoch must be at least 0, got -1");
  EXPECT_EQ(message_of<ConfigError>([&] { cursor.next(0); }),
            "SamplerCursor::next: count must be at least 1, got 0");
  EXPECT_EQ(message_of<ConfigError>([] { SamplerCursor(std::shared_ptr<const Sampler>()); }),
            "SamplerCursor: got no sampler");
  SamplerCursor liar(UnnamedSampler(2, 3));
  EXPECT_THAT(message_of<InternalError>([&] { liar.next(); }),
              HasSubstr("the sampler gave 2 indices and says 3"));
}

// A user-defined share() may contradict size() or itself.
TEST(SamplerCursor, RefusesAShareThatCannotBe) {
  class Liar final : public UnnamedSampler {
   public:
    explicit Liar(EpochShare share) : UnnamedSampler(3, 3), share_(std::move(share)) {}
    EpochShare share(std::int64_t, std::int64_t) const override { return share_; }

   private:
    EpochShare share_;
  };
  SamplerCursor shorter(Liar({.indices = {0, 1}, .occurrences = {}}));
  shorter.skip(3);
  EXPECT_THAT(message_of<InternalError>([&] { shorter.rest(); }),
              HasSubstr("the sampler gave 2 indices and says 3"));
  SamplerCursor uneven(Liar({.indices = {0, 1, 2}, .occurrences = {0, 0}}));
  EXPECT_THAT(message_of<InternalError>([&] { uneven.rest(); }),
              HasSubstr("the sampler gave 2 occurrences of 3 indices"));
}

TEST(SamplerPosition, TravelsAsText) {
  const SamplerPosition position = {"Kind(seed=1)", std::int64_t{1} << 33, std::int64_t{1} << 40};
  auto settings = to_settings(position);
  EXPECT_EQ(settings, (std::map<std::string, std::string>{
                          {"sampler", "Kind(seed=1)"},
                          {"sampler_epoch", "8589934592"},
                          {"sampler_taken", "1099511627776"},
                      }));
  settings["lr"] = "0.1";  // other settings may be stored with it
  EXPECT_EQ(sampler_position(settings), position);
  for (const char* name : {"sampler", "sampler_epoch", "sampler_taken"}) {
    auto without = settings;
    without.erase(name);
    EXPECT_EQ(message_of<CheckpointError>([&] { sampler_position(without); }),
              std::string("sampler position: no ") + name);
  }
  for (const char* text : {"", "x", "1x", "1.5", "99999999999999999999"}) {
    settings["sampler_taken"] = text;
    EXPECT_EQ(message_of<CheckpointError>([&] { sampler_position(settings); }),
              std::string("sampler position: sampler_taken is not a whole number: '") + text + "'");
  }
}

}  // namespace
}  // namespace lockstep::testing_support
