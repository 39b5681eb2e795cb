// Batches of a user-defined structure: text with lengths, and images with boxes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/rnn.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/datasets/sample_dataset.h>
#include <lockstep/data/loader/device_stage.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/data/samplers/weighted_sampler.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Review {
  torch::Tensor words;  // int64 [length]
  std::string author;
};

struct Reviews {
  torch::Tensor words;    // int64 [batch, longest]
  torch::Tensor lengths;  // int64 [batch]
  std::vector<std::string> authors;
};

// Review i has i % 4 + 1 words, all of which are i.
class Texts final : public SampleDataset<Review> {
 public:
  std::int64_t size() const override { return 23; }
  Review get(std::int64_t index, const SampleKey&) const override {
    return {torch::full({index % 4 + 1}, index, torch::kInt64), str("author ", index)};
  }
};

Reviews pad(const std::vector<Review>& samples) {
  Reviews batch;
  std::vector<torch::Tensor> words;
  std::vector<std::int64_t> lengths;
  for (const Review& sample : samples) {
    words.push_back(sample.words);
    lengths.push_back(sample.words.size(0));
    batch.authors.push_back(sample.author);
  }
  batch.words =
      torch::nn::utils::rnn::pad_sequence(words, /*batch_first=*/true, /*padding_value=*/-1);
  batch.lengths = torch::tensor(lengths);
  return batch;
}

TEST(OwnBatches, OfTextWithLengthsAreWhatTheCollateFunctionMakes) {
  for (const int threads : {0, 3}) {
    const DistributedSampler sampler(23, {.rank = 1, .world_size = 2, .seed = 4});
    BatchLoader loader(collate(std::make_shared<const Texts>(), pad), sampler,
                       {.batch_size = 5, .threads = threads});
    static_assert(std::same_as<decltype(loader), BatchLoader<Reviews>>);
    EXPECT_EQ(loader.steps_per_epoch(), 3);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      loader.set_epoch(epoch);
      std::vector<std::int64_t> seen;
      for (const Reviews& batch : loader) {
        for (std::int64_t i = 0; i < batch.words.size(0); ++i) {
          const auto index = batch.words[i][0].item<std::int64_t>();
          seen.push_back(index);
          EXPECT_EQ(batch.lengths[i].item<std::int64_t>(), index % 4 + 1);
          EXPECT_EQ(batch.words[i].eq(index).sum().item<std::int64_t>(), index % 4 + 1);
          EXPECT_EQ(batch.authors[static_cast<std::size_t>(i)], str("author ", index));
        }
        EXPECT_EQ(batch.words.size(1), batch.lengths.max().item<std::int64_t>());
      }
      EXPECT_EQ(seen, sampler.indices(epoch));
    }
  }
}

TEST(OwnBatches, GoOnInMidEpoch) {
  const auto texts = collate(std::make_shared<const Texts>(), pad);
  BatchLoader before(texts, DistributedSampler(23, {.seed = 4}), {.batch_size = 4});
  Reviews batch;
  ASSERT_TRUE(before.next(batch));
  const SamplerPosition position = before.position();
  ASSERT_TRUE(before.next(batch));
  const Reviews second = {batch.words.clone(), batch.lengths.clone(), batch.authors};
  BatchLoader after(texts, DistributedSampler(23, {.seed = 4}), {.batch_size = 4, .threads = 2});
  after.restore(position);
  ASSERT_TRUE(after.next(batch));
  EXPECT_TRUE(torch::equal(batch.words, second.words));
  EXPECT_TRUE(torch::equal(batch.lengths, second.lengths));
  EXPECT_EQ(batch.authors, second.authors);
}

// Images with boxes: a picture of 1x4x4 and as many boxes as the picture's number.
struct Scene {
  torch::Tensor image;
  std::vector<torch::Tensor> boxes;
  std::map<std::string, torch::Tensor> facts;
  std::tuple<torch::Tensor, float> weight;
};

class Scenes final : public BatchDataset<Scene> {
 public:
  std::int64_t size() const override { return 12; }
  void get(const BatchRequest& request, Scene& batch) const override {
    batch.image = torch::empty({request.size(), 1, 4, 4});
    batch.boxes.clear();
    for (std::int64_t i = 0; i < request.size(); ++i) {
      const std::int64_t index = request.indices[static_cast<std::size_t>(i)];
      batch.image[i].fill_(index);
      batch.boxes.push_back(torch::full({index, 4}, index));
    }
    batch.facts = {{"count", torch::scalar_tensor(request.size())},
                   {"nothing", torch::Tensor()},
                   {"spread", torch::ones({1, 3}).expand({2, 3})},
                   {"rare", torch::eye(3).to_sparse()}};
    batch.weight = {batch.image.select(2, 0).transpose(1, 2), 0.5F};
  }
};

void expect_scenes(BatchLoader<Scene>& loader) {
  std::int64_t next = 0;
  for (const Scene& batch : loader) {
    const std::int64_t count = batch.image.size(0);
    ASSERT_EQ(batch.boxes.size(), static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i, ++next) {
      EXPECT_TRUE(torch::equal(batch.image[i], torch::full({1, 4, 4}, static_cast<float>(next))));
      EXPECT_TRUE(
          torch::equal(batch.boxes[static_cast<std::size_t>(i)], torch::full({next, 4}, next)));
    }
    EXPECT_EQ(batch.facts.at("count").item<float>(), static_cast<float>(count));
    EXPECT_FALSE(batch.facts.at("nothing").defined());
    EXPECT_TRUE(torch::equal(batch.facts.at("spread"), torch::ones({2, 3})));
    EXPECT_TRUE(torch::equal(batch.facts.at("rare").to_dense(), torch::eye(3)));
    EXPECT_TRUE(torch::equal(std::get<0>(batch.weight), batch.image.select(2, 0).transpose(1, 2)));
    EXPECT_EQ(std::get<1>(batch.weight), 0.5F);
  }
  EXPECT_EQ(next, 12);
}

TEST(OwnBatches, OfImagesWithBoxesKeepTheirStructure) {
  for (const int threads : {0, 2}) {
    BatchLoader loader(std::make_shared<const Scenes>(), EvaluationSampler(12),
                       {.batch_size = 5, .threads = threads});
    expect_scenes(loader);
  }
}

// Without a GPU, batches are copied to other memory of the CPU by the same stages.
TEST(OwnBatches, MoveToTheDeviceAsAWhole) {
  const LoaderOptions options = {.batch_size = 5, .threads = 2};
  const auto scenes = std::make_shared<const Scenes>();
  std::set<const void*> made;
  std::mutex mutex;
  const auto copies =
      data::copy_to_device(detail::make_batch_dataset_engine(
                               [&](const BatchRequest& request, LoadedBatch& buffer) {
                                 Scene batch = buffer.batch<Scene>();
                                 scenes->get(request, batch);
                                 const std::lock_guard lock(mutex);
                                 for_each_tensor(batch, [&](const torch::Tensor& tensor) {
                                   if (tensor.defined() && tensor.layout() == torch::kStrided)
                                     made.insert(tensor.data_ptr());
                                 });
                                 buffer.store(std::move(batch));
                               },
                               options),
                           options);
  std::vector<std::int64_t> indices(12);
  std::iota(indices.begin(), indices.end(), 0);
  std::set<const void*> images;
  for (int epoch = 0; epoch < 4; ++epoch) {
    copies->start({.indices = indices, .batches = 3});
    std::int64_t next = 0;
    for (LoadedBatch loaded; copies->next(loaded);) {
      const Scene batch = loaded.batch<Scene>();
      images.insert(batch.image.data_ptr());
      for (std::int64_t i = 0; i < batch.image.size(0); ++i, ++next) {
        EXPECT_EQ(batch.image[i][0][0][0].item<float>(), static_cast<float>(next));
        EXPECT_TRUE(
            torch::equal(batch.boxes[static_cast<std::size_t>(i)], torch::full({next, 4}, next)));
      }
      EXPECT_FALSE(batch.facts.at("nothing").defined());
      EXPECT_TRUE(torch::equal(batch.facts.at("spread"), torch::ones({2, 3})));
      EXPECT_TRUE(torch::equal(batch.facts.at("rare").to_dense(), torch::eye(3)));
      EXPECT_EQ(std::get<0>(batch.weight).strides(),
                std::get<0>(batch.weight).contiguous().strides());
      EXPECT_EQ(std::get<1>(batch.weight), 0.5F);
    }
    EXPECT_EQ(next, 12);
  }
  EXPECT_LE(images.size(), 3U) << "each of the stage's buffers has its memory";
  for (const void* image : images) EXPECT_EQ(made.count(image), 0U) << "that was not copied";
}

TEST(OwnBatches, FindTheirBuffersMemoryAgain) {
  struct Reusing final : BatchDataset<std::array<torch::Tensor, 1>> {
    std::int64_t size() const override { return 40; }
    void get(const BatchRequest& request, std::array<torch::Tensor, 1>& batch) const override {
      if (!batch[0].defined()) batch[0] = torch::empty({4}, torch::kInt64);
      std::copy(request.indices.begin(), request.indices.end(), batch[0].data_ptr<std::int64_t>());
    }
  };
  BatchLoader loader(std::make_shared<const Reusing>(), EvaluationSampler(40),
                     {.batch_size = 4, .threads = 1, .prefetch = 2});
  std::set<const void*> memory;
  std::int64_t next = 0;
  for (const auto& [numbers] : loader) {
    memory.insert(numbers.data_ptr());
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(numbers[i].item<std::int64_t>(), next++);
  }
  EXPECT_EQ(memory.size(), 3U);
}

// Samples of tensors are stacked, as by PyTorch's default_collate.
using Pair = std::pair<torch::Tensor, std::vector<torch::Tensor>>;

class Pairs final : public SampleDataset<Pair> {
 public:
  explicit Pairs(std::int64_t odd = -1) : odd_(odd) {}
  std::int64_t size() const override { return 6; }
  Pair get(std::int64_t index, const SampleKey&) const override {
    std::vector<torch::Tensor> parts = {torch::full({2}, index), torch::scalar_tensor(index * 10)};
    if (index == odd_) parts.pop_back();
    return {torch::full({1, 3}, static_cast<float>(index)), parts};
  }

 private:
  const std::int64_t odd_;
};

TEST(OwnBatches, SamplesOfTensorsAreStacked) {
  BatchLoader loader(collate(std::make_shared<const Pairs>()), EvaluationSampler(6),
                     {.batch_size = 4});
  std::vector<std::int64_t> sizes;
  for (const Pair& batch : loader) {
    const std::int64_t count = batch.first.size(0);
    sizes.push_back(count);
    EXPECT_EQ(batch.first.sizes(), (torch::IntArrayRef{count, 1, 3}));
    EXPECT_EQ(batch.second.at(0).sizes(), (torch::IntArrayRef{count, 2}));
    EXPECT_EQ(batch.second.at(1).sizes(), torch::IntArrayRef{count});
    EXPECT_TRUE(torch::equal(batch.second[1], batch.first.select(2, 0).squeeze(1) * 10));
  }
  EXPECT_THAT(sizes, ElementsAre(4, 2));
  for (const std::int64_t odd : {0, 1}) {
    BatchLoader uneven(collate(std::make_shared<const Pairs>(odd)), EvaluationSampler(6),
                       {.batch_size = 4});
    Pair batch;
    EXPECT_THAT(
        message_of<ConfigError>([&] { uneven.next(batch); }),
        HasSubstr(odd == 1
                      ? "stack_samples: a sample has 2 tensors, the first one of its batch has 3"
                      : "stack_samples: a sample has 3 tensors, the first one of its batch has 2"));
  }
}

// The random choices for a sample depend on its seed, epoch, number and occurrence alone.
class Noise final : public SampleDataset<std::tuple<torch::Tensor, torch::Tensor>> {
 public:
  std::int64_t size() const override { return 8; }
  std::tuple<torch::Tensor, torch::Tensor> get(std::int64_t index,
                                               const SampleKey& key) const override {
    return {torch::rand({3}, generator_of(key)), torch::scalar_tensor(index)};
  }
};

TEST(OwnBatches, RandomChoicesDependOnTheSampleNotOnThreads) {
  const auto noise = collate(std::make_shared<const Noise>());
  const auto epoch = [&](const LoaderOptions& options, std::int64_t number) {
    BatchLoader loader(
        noise, WeightedRandomSampler(std::vector<double>(8, 1.0), {.num_samples = 32}), options);
    loader.set_epoch(number);
    std::vector<torch::Tensor> rows;
    for (const auto& [values, index] : loader)
      rows.push_back(torch::cat({values, index.unsqueeze(1)}, 1));
    return torch::cat(rows);
  };
  const torch::Tensor plain = epoch({.batch_size = 5, .seed = 1}, 0);
  EXPECT_TRUE(torch::equal(epoch({.batch_size = 8, .threads = 3, .seed = 1}, 0), plain));
  std::set<std::vector<float>> different;
  for (std::int64_t row = 0; row < 32; ++row) {
    const torch::Tensor values = plain[row].contiguous();
    different.emplace(values.data_ptr<float>(), values.data_ptr<float>() + 3);
  }
  EXPECT_EQ(different.size(), 32U) << "a sample that comes again gets choices of its own";
  EXPECT_FALSE(
      torch::equal(epoch({.batch_size = 5, .seed = 2}, 0).slice(1, 0, 3), plain.slice(1, 0, 3)));
}

TEST(OwnBatches, RefuseWhatIsMissing) {
  EXPECT_THAT(message_of<ConfigError>([] { collate(std::shared_ptr<const Texts>(), pad); }),
              HasSubstr("collate: got no data set"));
  EXPECT_THAT(message_of<ConfigError>(
                  [] { BatchLoader(std::shared_ptr<const Scenes>(), EvaluationSampler(4), {}); }),
              HasSubstr("Loader: got no data set"));
  EXPECT_THAT(message_of<ConfigError>([] {
                BatchLoader(std::make_shared<const Scenes>(), EvaluationSampler(12),
                            {.channels_last = true});
              }),
              HasSubstr("channels_last is about images"));
}

}  // namespace
}  // namespace lockstep::testing_support
