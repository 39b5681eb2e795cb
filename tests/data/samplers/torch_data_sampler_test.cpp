#include <lockstep/data/samplers/torch_data_sampler.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/serialize.h>

#include <memory>
#include <sstream>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

// Sample i is the number i.
class Numbers : public torch::data::datasets::BatchDataset<Numbers, Indices> {
 public:
  explicit Numbers(std::size_t size) : size_(size) {}
  Indices get_batch(c10::ArrayRef<std::size_t> indices) override {
    return {indices.begin(), indices.end()};
  }
  std::optional<std::size_t> size() const override { return size_; }

 private:
  std::size_t size_;
};

template <class DataLoader>
Indices walk(DataLoader& loader) {
  Indices seen;
  for (const Indices& batch : loader) seen.insert(seen.end(), batch.begin(), batch.end());
  return seen;
}

TEST(TorchDataSampler, TheCopyInALoaderFollowsTheEpoch) {
  for (const std::size_t workers : {0, 2}) {
    const DistributedSampler ours(23, {.rank = 1, .world_size = 2, .seed = 5});
    TorchDataSampler sampler(ours);
    const auto loader = torch::data::make_data_loader(
        Numbers(23), sampler, torch::data::DataLoaderOptions().batch_size(5).workers(workers));
    EXPECT_EQ(walk(*loader), ours.indices(0));
    for (const std::int64_t epoch : {1, 2, 1}) {
      sampler.set_epoch(epoch);
      EXPECT_EQ(walk(*loader), ours.indices(epoch)) << workers << " workers, epoch " << epoch;
    }
    EXPECT_EQ(walk(*loader), ours.indices(1)) << "the same again";
    EXPECT_NE(ours.indices(1), ours.indices(2));
  }
}

// The remaining indices of `sampler` after its state was saved and loaded into a new sampler.
Indices rest_of_saved(const TorchDataSampler& sampler, const DistributedSampler& ours) {
  torch::serialize::OutputArchive saved;
  sampler.save(saved);
  std::stringstream stream;
  saved.save_to(stream);
  torch::serialize::InputArchive loaded;
  loaded.load_from(stream);
  TorchDataSampler other(ours);
  other.load(loaded);
  EXPECT_EQ(other.epoch(), sampler.epoch());
  other.reset();
  const auto rest = other.next(100);
  return rest ? Indices(rest->begin(), rest->end()) : Indices();
}

TEST(TorchDataSampler, SavesTheEpochThatComesNext) {
  const DistributedSampler ours(20, {});
  TorchDataSampler sampler(ours);
  sampler.set_epoch(2);
  sampler.reset();
  sampler.next(100);
  EXPECT_EQ(rest_of_saved(sampler, ours), Indices()) << "that epoch is over";
  sampler.set_epoch(3);
  const Indices third = ours.indices(3);
  EXPECT_EQ(rest_of_saved(sampler, ours), third) << "and this one has not begun";
  sampler.set_epoch(3, 8);
  EXPECT_EQ(rest_of_saved(sampler, ours), Indices(third.begin() + 8, third.end()));
}

TEST(TorchDataSampler, GoesOnInMidEpoch) {
  const DistributedSampler ours(20, {});
  const Indices all = ours.indices(3);
  TorchDataSampler sampler(ours);
  const auto loader =
      torch::data::make_data_loader(Numbers(20), sampler, torch::data::DataLoaderOptions(4));
  sampler.set_epoch(3, 8);
  EXPECT_EQ(walk(*loader), Indices(all.begin() + 8, all.end()));
  EXPECT_EQ(walk(*loader), all) << "an epoch is cut once";

  sampler.reset();
  sampler.next(6);
  EXPECT_EQ(rest_of_saved(sampler, ours), Indices(all.begin() + 6, all.end()));
}

TEST(TorchDataSampler, SaysWhatIsWrong) {
  EXPECT_THAT(message_of<ConfigError>([] { TorchDataSampler(std::shared_ptr<const Sampler>()); }),
              HasSubstr("got no sampler"));
  TorchDataSampler sampler{SequentialSampler(4)};
  EXPECT_THAT(message_of<ConfigError>([&] { sampler.set_epoch(-1); }),
              HasSubstr("epoch must be from 0"));
  EXPECT_THAT(message_of<ConfigError>([&] { sampler.set_epoch(0, 5); }),
              HasSubstr("first must be from 0 to 4, got 5"));
  EXPECT_NO_THROW(sampler.set_epoch((std::int64_t{1} << 32) - 1, 4));
  EXPECT_THAT(message_of<ConfigError>([&] { sampler.set_epoch(std::int64_t{1} << 32); }),
              HasSubstr("TorchDataSampler::set_epoch: epoch must be from 0 to 4294967295"));
  EXPECT_THAT(message_of<ConfigError>([&] { sampler.set_epoch(0, -1); }),
              HasSubstr("first must be from 0 to 4, got -1"));
  EXPECT_NO_THROW(sampler.reset(4));
  EXPECT_THAT(message_of<ConfigError>([&] { sampler.reset(3); }),
              HasSubstr("cannot be reset to 3 indices, its sampler has 4"));
}

}  // namespace
}  // namespace lockstep::testing_support
