#include <lockstep/formats/cifar.h>

#include <lockstep/core/error.h>

namespace lockstep::formats {
namespace {

struct LabelByte {
  const char* what;
  std::int64_t classes;
};

// Parses records that begin with `labels`.
CifarRecords parse(std::span<const std::byte> bytes, std::int64_t expected_count,
                   std::span<const LabelByte> labels, const char* format, std::string_view name) {
  const auto record_bytes = static_cast<std::int64_t>(labels.size()) + kCifarPixelBytes;
  const auto got = static_cast<std::int64_t>(bytes.size());
  if (got % record_bytes != 0 || got / record_bytes != expected_count) {
    throw DataError(str(name, ": got ", got, " bytes, expected ", expected_count, " records of ",
                        record_bytes, " bytes (", expected_count * record_bytes, ")"));
  }
  const auto* records = reinterpret_cast<const std::uint8_t*>(bytes.data());
  for (std::int64_t i = 0; i < expected_count; ++i) {
    const std::uint8_t* label = records + i * record_bytes;
    for (const auto& [what, classes] : labels) {
      if (*label >= classes) {
        throw DataError(str(name, ": record ", i, " has ", what, " ", int{*label},
                            ", expected 0 to ", classes - 1, ": the file is damaged or not ",
                            format, "'s binary version"));
      }
      ++label;
    }
  }
  return {expected_count, records};
}

}  // namespace

CifarRecords parse_cifar10(std::span<const std::byte> bytes, std::int64_t expected_count,
                           std::string_view name) {
  static constexpr LabelByte kLabels[] = {{"label", kCifar10Classes}};
  return parse(bytes, expected_count, kLabels, "CIFAR-10", name);
}

CifarRecords parse_cifar100(std::span<const std::byte> bytes, std::int64_t expected_count,
                            std::string_view name) {
  static constexpr LabelByte kLabels[] = {{"coarse label", kCifar100CoarseClasses},
                                          {"fine label", kCifar100Classes}};
  return parse(bytes, expected_count, kLabels, "CIFAR-100", name);
}

}  // namespace lockstep::formats
