#include <lockstep/formats/npy.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>

namespace lockstep::formats {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kNpyVersionEnd = 8;  // where the length of the header begins

// NumPy's names of types, without the byte order, and safetensors'.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kNpyTypes = {{
    {"b1", "BOOL"},
    {"u1", "U8"},
    {"i1", "I8"},
    {"u2", "U16"},
    {"i2", "I16"},
    {"f2", "F16"},
    {"u4", "U32"},
    {"i4", "I32"},
    {"f4", "F32"},
    {"u8", "U64"},
    {"i8", "I64"},
    {"f8", "F64"},
    {"c8", "C64"},
}};

class NpyParser {
 public:
  NpyParser(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  TensorView parse() {
    header_ = header();
    read_dict();
    if (!type_ || !shape_ || !is_column_major_) {
      fail("the header lacks descr, fortran_order or shape");
    }
    // An array of at most one dimension is in both orders.
    if (*is_column_major_ && shape_->size() > 1) {
      fail("the array is in column-major order; save numpy.ascontiguousarray(array)");
    }
    const std::string_view dtype = dtype_of(*type_);
    std::size_t expected = safetensors_element_bytes(dtype);
    for (const std::int64_t side : *shape_) {
      if (__builtin_mul_overflow(expected, static_cast<std::size_t>(side), &expected)) {
        fail("the shape asks for more than memory can hold");
      }
    }
    if (data_.size() != expected) {
      fail(data_.size() < expected ? "truncated" : "oversized", ", got ", data_.size(),
           " bytes after the header, expected ", expected);
    }
    return {.dtype = std::string(dtype), .shape = *shape_, .bytes = data_};
  }

 private:
  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw DataError(str(name_, ": ", values...));
  }

  // The text of the header; what follows it becomes data_.
  std::string_view header() {
    const bool has_magic = bytes_.size() >= kNpyVersionEnd &&
                           std::memcmp(bytes_.data(), kNpyMagic.data(), kNpyMagic.size()) == 0;
    if (!has_magic) fail("is not a file of numpy.save (.npy)");
    const int version = std::to_integer<int>(bytes_[kNpyMagic.size()]);
    if (version < 1 || version > 3)
      fail("has version ", version, " of the format, expected 1 to 3");
    const std::size_t length_bytes = version == 1 ? 2 : 4;
    std::size_t length = 0;
    if (bytes_.size() < kNpyVersionEnd + length_bytes) fail("truncated");
    for (std::size_t i = length_bytes; i-- > 0;) {
      length = length << 8 | std::to_integer<std::size_t>(bytes_[kNpyVersionEnd + i]);
    }
    const auto rest = bytes_.subspan(kNpyVersionEnd + length_bytes);
    if (length > rest.size()) {
      fail("the header claims ", length, " bytes, the file holds ", rest.size(),
           " after its length (truncated)");
    }
    data_ = rest.subspan(length);
    return {reinterpret_cast<const char*>(rest.data()), length};
  }

  [[noreturn]] void refuse_header() const {
    fail("the header is '", printable(header_), "', expected a dict such as {'descr': '<f4', ",
         "'fortran_order': False, 'shape': (3, 4), }");
  }

  void skip_blanks() {
    while (at_ < header_.size() && (header_[at_] == ' ' || header_[at_] == '\n')) ++at_;
  }
  // Whether `text` comes next; if so, skips it.
  bool takes(std::string_view text) {
    skip_blanks();
    if (!header_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  void require(std::string_view text) {
    if (!takes(text)) refuse_header();
  }

  void read_dict() {
    require("{");
    while (!takes("}")) {
      const std::string_view key = quoted();
      require(":");
      if (key == "descr" && !type_) {
        // A structured type is a list.
        if (takes("[")) fail("holds records, expected numbers");
        type_ = quoted();
      } else if (key == "fortran_order" && !is_column_major_) {
        is_column_major_ = takes("True");
        if (!*is_column_major_) require("False");
      } else if (key == "shape" && !shape_) {
        shape_ = sides();
      } else {
        refuse_header();
      }
      if (!takes(",")) {
        require("}");
        break;
      }
    }
    skip_blanks();
    if (at_ != header_.size()) refuse_header();
  }

  std::string_view quoted() {
    skip_blanks();
    const char quote = at_ < header_.size() ? header_[at_] : '\0';
    const std::size_t end = header_.find(quote, at_ + 1);
    if ((quote != '\'' && quote != '"') || end == std::string_view::npos) refuse_header();
    const std::string_view text = header_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return text;
  }

  std::vector<std::int64_t> sides() {
    std::vector<std::int64_t> all;
    require("(");
    while (!takes(")")) {
      skip_blanks();
      std::int64_t side = 0;
      const char* const end = header_.data() + header_.size();
      const auto [stop, error] = std::from_chars(header_.data() + at_, end, side);
      if (error != std::errc() || side < 0) refuse_header();
      at_ = static_cast<std::size_t>(stop - header_.data());
      all.push_back(side);
      if (!takes(",")) {
        require(")");
        break;
      }
    }
    return all;
  }

  std::string_view dtype_of(std::string_view type) const {
    const char order = type.empty() ? '\0' : type.front();
    if (order == '>')
      fail("holds big-endian numbers; save array.astype(array.dtype.newbyteorder('<'))");
    for (const auto& [name, dtype] : kNpyTypes) {
      if ((order == '<' || order == '|') && type.substr(1) == name) return dtype;
    }
    fail("holds elements of type '", printable(type), "', expected numbers or truth values");
  }

  std::span<const std::byte> bytes_;
  std::span<const std::byte> data_;
  std::string_view name_;
  std::string_view header_;
  std::size_t at_ = 0;  // in header_
  std::optional<std::string_view> type_;
  std::optional<bool> is_column_major_;
  std::optional<std::vector<std::int64_t>> shape_;
};

}  // namespace

TensorView parse_npy(std::span<const std::byte> bytes, std::string_view name) {
  return NpyParser(bytes, name).parse();
}

}  // namespace lockstep::formats
