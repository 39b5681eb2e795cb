#include <lockstep/core/encoding/pickle_writer.h>

#include <bit>
#include <limits>
#include <type_traits>
#include <utility>

namespace lockstep {

PickleWriter::PickleWriter() : out_("\x80\x02") {}

template <typename Integer>
void PickleWriter::little_endian(Integer value) {
  auto rest = static_cast<std::make_unsigned_t<Integer>>(value);
  for (std::size_t i = 0; i < sizeof(Integer); ++i, rest >>= 8)
    out_ += static_cast<char>(rest & 0xff);
}

void PickleWriter::integer(std::int64_t value) {
  if (value >= std::numeric_limits<std::int32_t>::min() &&
      value <= std::numeric_limits<std::int32_t>::max()) {
    out_ += 'J';
    little_endian(static_cast<std::int32_t>(value));
  } else {
    out_ += '\x8a';
    out_ += static_cast<char>(sizeof(value));
    little_endian(value);
  }
}

void PickleWriter::number(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  out_ += 'G';
  for (int shift = 56; shift >= 0; shift -= 8) out_ += static_cast<char>(bits >> shift & 0xff);
}

void PickleWriter::text(std::string_view utf8) {
  out_ += 'X';
  little_endian(static_cast<std::uint32_t>(utf8.size()));
  out_ += utf8;
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  out_ += 'c';
  out_ += module;
  out_ += '\n';
  out_ += name;
  out_ += '\n';
}

void PickleWriter::ordered_dict() {
  global("collections", "OrderedDict");
  out_ += ')';
  call();
}

std::string PickleWriter::finish() {
  out_ += '.';
  return std::move(out_);
}

}  // namespace lockstep
