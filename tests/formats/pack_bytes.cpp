#include <tests/formats/pack_bytes.h>

#include <cstring>

#include <lockstep/formats/checksum.h>
#include <lockstep/formats/pack_layout.h>
#include <lockstep/formats/pack_writer.h>
#include <lockstep/formats/png.h>
#include <tests/formats/jpeg_bytes.h>
#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

std::string written(const formats::PackInfo& info,
                    const std::vector<formats::PackRecord>& records) {
  const TemporaryDirectory directory;
  formats::PackWriter writer(directory / "pack", info, static_cast<std::int64_t>(records.size()));
  for (const formats::PackRecord& record : records) writer.add(record);
  writer.finish();
  return read_text(directory / "pack");
}

}  // namespace

std::string pixel_pack(int count, bool own_sizes, const std::string& name) {
  const std::string pixels = pattern(static_cast<std::size_t>(3 * 4 * (5 + count)));
  std::vector<formats::PackRecord> records;
  for (int i = 0; i < count; ++i) {
    const int width = own_sizes ? 5 + i : 5;
    records.push_back({as_bytes(pixels).subspan(static_cast<std::size_t>(i),
                                                static_cast<std::size_t>(12 * width)),
                       i % 2, 4, width});
  }
  return written(
      {.kind = formats::PackKind::kPixels, .name = name, .channels = 3, .num_classes = 2}, records);
}

std::string file_pack() {
  const std::string jpeg = encode_jpeg(jpeg_kinds(21, 17).front());
  const std::string pixels = pattern(3 * 9 * 7);
  const std::string png = detail::encode_png(
      {reinterpret_cast<const std::uint8_t*>(pixels.data()), pixels.size()}, 9, 7);
  return written({.kind = formats::PackKind::kFiles,
                  .name = "files",
                  .channels = 3,
                  .num_classes = 3,
                  .class_names = {"cat", "dog", "none of these"}},
                 {{as_bytes(jpeg), 2, 17, 21}, {as_bytes(png), 0, 7, 9}});
}

std::string with_right_checksums(std::string pack, PackLength length) {
  if (pack.size() < sizeof(formats::PackHeader)) return pack;
  formats::PackHeader header;
  std::memcpy(&header, pack.data(), sizeof(header));
  const std::uint64_t most = pack.size();
  if (length == PackLength::kMadeRight) header.file_bytes = most;
  if (header.names_bytes <= most && header.records <= most) {
    const std::uint64_t end = formats::pack_data_offset(header.names_bytes, header.records);
    if (end <= most) {
      header.table_checksum =
          formats::checksum(as_bytes(pack).subspan(sizeof(header), end - sizeof(header)));
    }
  }
  std::memcpy(pack.data(), &header, sizeof(header));
  header.header_checksum = formats::checksum(as_bytes(pack).first(formats::kPackHeaderChecked));
  std::memcpy(pack.data(), &header, sizeof(header));
  return pack;
}

}  // namespace lockstep::testing_support
