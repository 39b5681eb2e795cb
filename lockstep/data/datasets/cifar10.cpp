#include <lockstep/data/datasets/cifar10.h>

#include <string>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/data/files/data_file.h>
#include <lockstep/formats/cifar.h>

namespace lockstep {
namespace {

constexpr const char* kSubfolder = "cifar-10-batches-bin";
constexpr std::int64_t kRecordsPerFile = 10'000;
// Twice a valid file: the parser explains a file that is only slightly too large.
constexpr std::size_t kMaximumCifarBytes = kRecordsPerFile * formats::kCifarRecordBytes * 2;

struct Description {
  const char* name;
  std::vector<std::string> files;
};

Description describe(Split split) {
  if (split == Split::kTest) return {"CIFAR-10 test", {"test_batch.bin"}};
  const auto batch = [](int number) { return str("data_batch_", number, ".bin"); };
  return {"CIFAR-10 train", {batch(1), batch(2), batch(3), batch(4), batch(5)}};
}

}  // namespace

ImageDataset load_cifar10(const std::filesystem::path& directory, Split split) {
  const Description description = describe(split);
  const std::filesystem::path folder =
      data::folder_with(directory, kSubfolder, description.files.front());
  std::vector<ImageShard> shards;
  for (const std::string& name : description.files) {
    const data::DataFile file = data::open_data_file(folder, name, kMaximumCifarBytes);
    const formats::CifarRecords records =
        formats::parse_cifar10(file.bytes, kRecordsPerFile, file.path);
    ImageShard shard;
    shard.images = records.records + 1;
    shard.image_stride = formats::kCifarRecordBytes;
    shard.labels = records.records;
    shard.label_stride = formats::kCifarRecordBytes;
    shard.count = records.count;
    shard.keep_alive = file.keep_alive;
    shards.push_back(std::move(shard));
  }
  return ImageDataset(
      description.name, {3, formats::kCifarSide, formats::kCifarSide}, formats::kCifar10Classes,
      std::move(shards),
      {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"});
}

void check_cifar10(const std::filesystem::path& directory, Split split) {
  const Description description = describe(split);
  constexpr std::uint64_t kExpectedBytes = kRecordsPerFile * formats::kCifarRecordBytes;
  for (const std::string& name : description.files) {
    const data::DataSize file = data::data_file_size(
        data::folder_with(directory, kSubfolder, description.files.front()), name);
    if (file.bytes != kExpectedBytes) {
      throw DataError(str(file.path, ": holds ", file.bytes, " bytes, expected ", kExpectedBytes,
                          " of ", kRecordsPerFile, " records; it is truncated or another's"));
    }
  }
}

}  // namespace lockstep
