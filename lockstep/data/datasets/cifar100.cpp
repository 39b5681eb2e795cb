#include <lockstep/data/datasets/cifar100.h>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/files/data_file.h>
#include <lockstep/formats/cifar.h>

namespace lockstep {
namespace {

// As the publisher's fine_label_names.txt and coarse_label_names.txt list them.
const std::vector<std::string>& fine_names() {
  static const std::vector<std::string> names = {
      "apple",       "aquarium_fish", "baby",      "bear",       "beaver",       "bed",
      "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
      "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
      "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
      "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
      "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
      "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn_mower",
      "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple_tree",
      "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak_tree",     "orange",
      "orchid",      "otter",         "palm_tree", "pear",       "pickup_truck", "pine_tree",
      "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
      "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
      "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
      "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet_pepper",
      "table",       "tank",          "telephone", "television", "tiger",        "tractor",
      "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
      "willow_tree", "wolf",          "woman",     "worm"};
  return names;
}

const std::vector<std::string>& coarse_names() {
  static const std::vector<std::string> names = {"aquatic_mammals",
                                                 "fish",
                                                 "flowers",
                                                 "food_containers",
                                                 "fruit_and_vegetables",
                                                 "household_electrical_devices",
                                                 "household_furniture",
                                                 "insects",
                                                 "large_carnivores",
                                                 "large_man-made_outdoor_things",
                                                 "large_natural_outdoor_scenes",
                                                 "large_omnivores_and_herbivores",
                                                 "medium_mammals",
                                                 "non-insect_invertebrates",
                                                 "people",
                                                 "reptiles",
                                                 "small_mammals",
                                                 "trees",
                                                 "vehicles_1",
                                                 "vehicles_2"};
  return names;
}

}  // namespace

ImageDataset load_cifar100(const std::filesystem::path& directory, Split split,
                           Cifar100Labels labels) {
  const bool train = split == Split::kTrain;
  const bool fine = labels == Cifar100Labels::kFine;
  const std::string name = train ? "train.bin" : "test.bin";
  const std::int64_t expected = train ? 50'000 : 10'000;
  // Twice a valid file: the parser explains a file that is only slightly too large.
  const data::DataFile file =
      data::open_data_file(data::folder_with(directory, "cifar-100-binary", name), name,
                           static_cast<std::size_t>(expected * formats::kCifar100RecordBytes * 2));
  const formats::CifarRecords records = formats::parse_cifar100(file.bytes, expected, file.path);
  ImageShard shard;
  shard.images = records.records + 2;
  shard.image_stride = formats::kCifar100RecordBytes;
  shard.labels = records.records + (fine ? 1 : 0);
  shard.label_stride = formats::kCifar100RecordBytes;
  shard.count = records.count;
  shard.keep_alive = file.keep_alive;
  return ImageDataset(str("CIFAR-100 ", train ? "train" : "test", fine ? "" : " (coarse labels)"),
                      {3, formats::kCifarSide, formats::kCifarSide},
                      fine ? formats::kCifar100Classes : formats::kCifar100CoarseClasses,
                      {std::move(shard)}, fine ? fine_names() : coarse_names());
}

}  // namespace lockstep
