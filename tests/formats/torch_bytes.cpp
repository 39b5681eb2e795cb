#include <tests/formats/torch_bytes.h>

#include <cstdint>

#include <lockstep/core/strings.h>
#include <lockstep/formats/torch_file/zip_archive.h>
#include <lockstep/formats/torch_file/zip_records.h>
#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using namespace std::string_literals;

// The value at `at`; 0 beyond the end.
std::uint64_t number_at(const std::string& bytes, std::size_t at, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = count; i-- > 0;) {
    value = value << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
  }
  return value;
}

void put_crc(std::string& bytes, std::size_t at, std::uint32_t crc) {
  for (std::size_t i = 0; i < 4 && at + i < bytes.size(); ++i, crc >>= 8) {
    bytes[at + i] = static_cast<char>(crc & 0xff);
  }
}

}  // namespace

std::string pickled_text(std::string_view text) {
  return "X"s + static_cast<char>(text.size()) + "\0\0\0"s + std::string(text);
}

std::string python_state_pickle() {
  return "\x80\x02"
         "ccollections\nOrderedDict\nq\0)Rq\1("s +  //
         pickled_text("a") +
         "q\2ctorch._utils\n_rebuild_tensor_v2\nq\3(("s + pickled_text("storage") +
         "q\4ctorch\nFloatStorage\nq\5"s + pickled_text("0") + "q\6"s + pickled_text("cpu") +
         "q\7K\6tq\10QK\0K\2K\3\206q\tK\3K\1\206q\n\211h\0)Rq\13tq\14Rq\r"s + pickled_text("b") +
         "q\16h\3((h\4h\5h\6h\7K\6tq\17QK\0K\3K\2\206q\20K\1K\3\206q\21"s +
         "\211h\0)Rq\22tq\23Rq\24u}q\25"s + pickled_text("_metadata") + "q\26h\0)Rq\27"s +
         pickled_text("") + "q\30}q\31" + pickled_text("version") + "q\32K\1ss" + "sb.";
}

std::string tensor_pickle(std::string_view elements, std::string_view offset,
                          std::string_view shape, std::string_view strides) {
  return str(
      "\x80\x02"
      "ctorch._utils\n_rebuild_tensor_v2\n((",
      pickled_text("storage"), "ctorch\nFloatStorage\n", pickled_text("0"), pickled_text("cpu"),
      elements, "tQ", offset, shape, strides, "\x89", "ccollections\nOrderedDict\n)RtR.");
}

std::string pack(const TorchArchive& archive) {
  std::string file;
  torch_file::ZipWriter zip([&](std::string_view piece) { file += piece; });
  const auto add = [&](const std::string& name, const std::string& content) {
    if (!content.empty()) zip.add(archive.root + name, content);
  };
  add("data.pkl", archive.pickle);
  add("byteorder", archive.byteorder);
  for (const auto& [key, bytes] : archive.storages) zip.add(archive.root + "data/" + key, bytes);
  add("version", archive.version);
  zip.finish();
  return file;
}

std::string small_torch_file() {
  static const std::string data = pattern(96);
  const auto bytes = as_bytes(data);
  return serialize_torch_file({
      {"weight", {"F32", {2, 3}, {3, 1}, 0, bytes.first(24)}},
      {"weight_t", {"F32", {3, 2}, {1, 3}, 0, bytes.first(24)}},
      {"steps", {"I64", {}, {}, 1, bytes.subspan(24, 16)}},
      {"flags", {"BOOL", {3}, {1}, 0, bytes.subspan(40, 3)}},
      {"nothing", {"BF16", {4, 0}, {1, 1}, 0, {}}},
      {"tiny", {"F8_E4M3", {2, 2}, {2, 1}, 1, bytes.subspan(48, 5)}},
      {"row", {"F32", {5, 3}, {0, 1}, 3, bytes.first(24)}},
  });
}

std::string legacy_torch_file() {
  std::string content = python_state_pickle();
  // The old persistent id has one more part, which is None.
  const std::string end_of_id = "K\6tq";
  for (std::size_t at = content.find(end_of_id); at != std::string::npos;
       at = content.find(end_of_id, at)) {
    content.insert(at + 2, "N");
  }
  return "\x80\x02\x8a\nl\xfc\x9c"
         "F\xf9 j\xa8P\x19."s +
         "\x80\x02M\xe9\x03."s + "\x80\x02}q\0"s + pickled_text("little_endian") + "q\1\x88s."s +
         content + "\x80\x02]q\0"s + pickled_text("0") + "q\1a."s + little_endian_64(6) +
         pattern(24);
}

std::string with_right_crcs(std::string zip) {
  if (zip.size() < torch_file::kEndBytes) return zip;
  std::size_t at = number_at(zip, zip.size() - 6, 4);
  while (at + torch_file::kDirectoryBytes <= zip.size() &&
         number_at(zip, at, 4) == torch_file::kDirectorySignature) {
    const std::uint64_t bytes = number_at(zip, at + 24, 4);
    const std::uint64_t local = number_at(zip, at + 42, 4);
    const std::uint64_t begin = local + torch_file::kLocalBytes + number_at(zip, local + 26, 2) +
                                number_at(zip, local + 28, 2);
    if (begin <= zip.size() && bytes <= zip.size() - begin) {
      const std::uint32_t crc = torch_file::crc_32(as_bytes(zip).subspan(begin, bytes));
      put_crc(zip, at + 16, crc);
      put_crc(zip, local + 14, crc);
    }
    at += torch_file::kDirectoryBytes + number_at(zip, at + 28, 2) + number_at(zip, at + 30, 2) +
          number_at(zip, at + 32, 2);
  }
  return zip;
}

}  // namespace lockstep::testing_support
