// The code of docs/loading_data.md, with checks of what it claims.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>

using namespace lockstep;

namespace {

void check(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "error: " << what << '\n';
  std::exit(1);
}

// 600 images of 3x32x32 in ten classes. Each class has its own shade.
ImageDataset shades() {
  const torch::Tensor labels = torch::arange(600).remainder(10);
  const torch::Tensor images =
      (labels * 25).to(torch::kUInt8).view({600, 1, 1, 1}).expand({600, 3, 32, 32}).contiguous();
  return image_dataset(images, labels, 10, "shades");
}

const std::vector<double> mean = {0.45, 0.45, 0.45};
const std::vector<double> deviation = {0.3, 0.3, 0.3};

void load(int rank, int world_size) {
  const ImageDataset all = shades();
  const auto parts = random_split(all, {0.9, 0.1}, /*seed=*/1);
  Loader loader(parts[0],
                DistributedSampler(parts[0].size(), {.rank = rank, .world_size = world_size}),
                {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{}, Normalize{mean, deviation}},
                {.batch_size = 64, .threads = 2});
  std::int64_t images = 0;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    loader.set_epoch(epoch);
    for (const Batch& batch : loader) {
      images += batch.images.size(0);  // float32 [64, 3, 32, 32], valid until the next one
    }
  }
  check(images == 2 * 540 / world_size, "each rank sees its share");
}

void go_on() {
  const ImageDataset dataset = shades();
  const Augmentation list = {RandomHorizontalFlip{}, Normalize{mean, deviation}};
  Loader before(dataset, RandomSampler(dataset.size()), list, {.batch_size = 100});
  Batch batch;
  before.next(batch);
  before.next(batch);
  const auto saved = to_settings(before.position());  // text, for a checkpoint

  Loader after(dataset, RandomSampler(dataset.size()), list, {.batch_size = 50, .threads = 1});
  after.restore(sampler_position(saved));
  check(after.steps_left() == 8, "what is left, in batches of this loader");
  std::int64_t left = 0;
  while (after.next(batch)) left += batch.size;
  check(left == 400, "the epoch goes on where it was");
  after.set_epoch(/*epoch=*/3, /*first_step=*/10);
  check(after.steps_left() == 2 && after.steps_per_epoch() == 12, "the last two of twelve batches");
}

// A user-defined data set of samples, with batches of a user-defined structure.
struct Review {
  torch::Tensor words;  // int64 [length]
  std::int64_t stars = 0;
};

struct Reviews {
  torch::Tensor words;    // int64 [batch, longest], padded with zeros
  torch::Tensor lengths;  // int64 [batch]
  torch::Tensor stars;    // int64 [batch]
};

class Feedback final : public SampleDataset<Review> {
 public:
  std::int64_t size() const override { return 1000; }
  Review get(std::int64_t index, const SampleKey& key) const override {
    const torch::Tensor words = torch::arange(1, 2 + index % 7);
    PhiloxStream random = key.stream();
    const std::int64_t begin = random.below(static_cast<std::uint32_t>(words.size(0)));
    return {.words = words.slice(/*dim=*/0, begin), .stars = index % 5};  // starts at a random word
  }
};

Reviews pad_words(const std::vector<Review>& samples) {
  std::vector<torch::Tensor> words;
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> stars;
  for (const Review& sample : samples) {
    words.push_back(sample.words);
    lengths.push_back(sample.words.size(0));
    stars.push_back(sample.stars);
  }
  return {.words = torch::nn::utils::rnn::pad_sequence(words, /*batch_first=*/true),
          .lengths = torch::tensor(lengths),
          .stars = torch::tensor(stars)};
}

void load_reviews() {
  BatchLoader loader(collate(std::make_shared<const Feedback>(), pad_words), RandomSampler(1000),
                     {.batch_size = 32, .threads = 2});
  std::int64_t reviews = 0, words = 0;
  for (const Reviews& batch : loader) {
    check(batch.words.ne(0).sum(1).equal(batch.lengths), "words are padded to the longest");
    reviews += batch.stars.size(0);
    words += batch.lengths.sum().item<std::int64_t>();
  }
  check(reviews == 1000, "every review comes once");

  BatchLoader again(collate(std::make_shared<const Feedback>(), pad_words), RandomSampler(1000),
                    {.batch_size = 10});
  for (const Reviews& batch : again) words -= batch.lengths.sum().item<std::int64_t>();
  check(words == 0, "random choices are the same for any batch size and number of threads");
}

// A user-defined data set that makes whole batches.
struct Signals {
  torch::Tensor waves;             // float32 [batch, 50]
  torch::Tensor odd;               // int64 [batch]
  std::vector<std::string> names;  // [batch]
};

class Waves final : public BatchDataset<Signals> {
 public:
  std::int64_t size() const override { return 1000; }
  void get(const BatchRequest& request, Signals& batch) const override {
    const torch::Tensor phase =
        torch::tensor(torch::IntArrayRef(request.indices.data(), request.indices.size()));
    batch.waves = torch::sin(torch::linspace(0, 6.28, 50).unsqueeze(0) + phase.unsqueeze(1));
    batch.odd = phase.remainder(2);
    batch.names.clear();  // it still holds those of an earlier batch
    for (const std::int64_t index : request.indices) {
      batch.names.push_back("wave " + std::to_string(index));
    }
  }
};

void load_waves() {
  BatchLoader loader(std::make_shared<const Waves>(), RandomSampler(1000),
                     {.batch_size = 32, .threads = 2});
  for (const Signals& batch : loader) {
    check(batch.waves.size(1) == 50, "a batch is what get() made");
    check(std::ssize(batch.names) == batch.waves.size(0), "there is a name for each wave");
  }
}

// Draws every class equally often, although the data set has many more images of class 0.
void balance() {
  const torch::Tensor labels = (torch::arange(1000) >= 900).to(torch::kInt64);
  const ImageDataset dataset =
      image_dataset(torch::zeros({1000, 1, 8, 8}, torch::kUInt8), labels, 2, "unequal classes");
  std::vector<double> weights;
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    weights.push_back(dataset.label(i) == 0 ? 1.0 / 900 : 1.0 / 100);
  }
  Loader loader(dataset, WeightedRandomSampler(weights, {.seed = 1}), {Normalize{{0.5}, {0.5}}},
                {.batch_size = 100});
  std::int64_t ones = 0;
  for (const Batch& batch : loader) ones += batch.labels.sum().item<std::int64_t>();
  check(ones > 400 && ones < 600, "each class comes about as often");
}

// A torch::data loader takes its indices from one of our samplers.
class Squares final : public torch::data::datasets::Dataset<Squares> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    const torch::Tensor number = torch::tensor(static_cast<std::int64_t>(index));
    return {number, number.square()};
  }
  std::optional<std::size_t> size() const override { return 100; }
};

void load_by_torch_data() {
  TorchDataSampler sampler(DistributedSampler(100, {.rank = 0, .world_size = 2}));
  auto loader = torch::data::make_data_loader(Squares(), sampler, /*batch_size=*/10);
  std::int64_t samples = 0;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    sampler.set_epoch(epoch);
    for (const auto& batch : *loader) samples += static_cast<std::int64_t>(batch.size());
  }
  check(samples == 2 * 50, "each rank sees its share");
}

void mix() {
  const ImageDataset dataset = shades();
  Loader loader(dataset, RandomSampler(dataset.size()), {Normalize{mean, deviation}},
                {.batch_size = 64, .mix = RandomMix{CutMix{}, MixUp{0.2}}});
  for (const Batch& batch : loader) {
    check(batch.labels.size(1) == 10, "labels are probabilities of the classes");
  }
}

void pack() {
  const ImageDataset dataset = shades();
  const auto file = std::filesystem::temp_directory_path() /
                    ("lockstep-example-" + std::to_string(getpid()) + ".pack");
  pack_images(dataset, file, {.resize = Resize{16}, .threads = 2});
  const ImageDataset packed = load_packed_images(file);
  check(packed.size() == 600 && packed.shape() == ImageShape{3, 16, 16}, "a pack has all images");
  std::filesystem::remove(file);
}

}  // namespace

int main() {
  load(/*rank=*/1, /*world_size=*/2);
  go_on();
  load_reviews();
  load_waves();
  balance();
  load_by_torch_data();
  mix();
  pack();
  std::cout
      << "loading: samples, positions, own batches, weights, mixes and packs are as the guide "
         "says\n";
}
