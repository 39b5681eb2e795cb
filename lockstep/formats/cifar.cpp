#include <lockstep/formats/cifar.h>

#include <lockstep/core/error.h>

namespace lockstep {

CifarRecords parse_cifar10(std::span<const std::byte> bytes, std::int64_t expected_count,
                           std::string_view name) {
  const auto got = static_cast<std::int64_t>(bytes.size());
  if (got % kCifarRecordBytes != 0 || got / kCifarRecordBytes != expected_count) {
    throw DataError(str(name, ": got ", got, " bytes, expected ", expected_count, " records of ",
                        kCifarRecordBytes, " bytes (", expected_count * kCifarRecordBytes, ")"));
  }
  const auto* records = reinterpret_cast<const std::uint8_t*>(bytes.data());
  for (std::int64_t i = 0; i < expected_count; ++i) {
    const int label = records[i * kCifarRecordBytes];
    if (label >= kCifar10Classes) {
      throw DataError(
          str(name, ": record ", i, " has label ", label,
              ", expected 0 to 9: the file is damaged or not CIFAR-10's binary version"));
    }
  }
  return {expected_count, records};
}

}  // namespace lockstep
