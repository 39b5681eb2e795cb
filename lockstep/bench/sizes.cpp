#include <lockstep/bench/sizes.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include <lockstep/core/error.h>
#include <lockstep/report/text.h>

namespace lockstep::bench {
namespace {

struct Unit {
  const char* name;
  double bytes;
};
constexpr double kKiB = 1024;
constexpr double kMiB = 1024 * kKiB;
constexpr double kGiB = 1024 * kMiB;
constexpr double kTiB = 1024 * kGiB;
constexpr std::array<Unit, 14> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"KiB", kKiB},
                                          {"MiB", kMiB},
                                          {"GiB", kGiB},
                                          {"TiB", kTiB},
                                          {"K", kKiB},
                                          {"M", kMiB},
                                          {"G", kGiB},
                                          {"T", kTiB},
                                          {"kB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12}}};
constexpr double kMostBytes = kTiB;

std::optional<std::int64_t> bytes_in(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string unit(stop, end);
  for (const Unit& each : kUnits) {
    if (error != std::errc() || unit != each.name) continue;
    const double bytes = number * each.bytes;
    if (bytes >= 1 && bytes <= kMostBytes && bytes == std::floor(bytes)) {
      return static_cast<std::int64_t>(bytes);
    }
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const std::string& option, const char* expected, const std::string& text) {
  throw ConfigError(str(option, ": expected ", expected,
                        " (units: B, KiB, MiB, GiB, TiB of 1024, kB, MB, GB, TB of 1000); got '",
                        text, "'"));
}

}  // namespace

std::int64_t parse_bytes(const std::string& option, const std::string& text) {
  const std::optional<std::int64_t> bytes = bytes_in(text);
  if (!bytes) refuse(option, "a size from 1 byte to 1TiB, such as 64KiB", text);
  return *bytes;
}

std::vector<std::int64_t> parse_sizes(const std::string& option, const std::string& text) {
  std::vector<std::int64_t> sizes;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, comma - at);
    const std::optional<std::int64_t> bytes = bytes_in(word);
    if (!bytes) {
      refuse(option, "sizes from 1 byte to 1TiB, separated by commas, such as 4,64KiB,1MiB", word);
    }
    sizes.push_back(*bytes);
    at = comma + 1;
  }
  return sizes;
}

std::string binary_bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 3; ++unit) bytes /= 1024;
  return report::fixed_text(bytes, bytes == std::floor(bytes) || bytes >= 100 ? 0 : 1) + " " +
         units[unit];
}

std::string short_number(double value) {
  if (value >= 1000) return report::count_text(value);
  return report::fixed_text(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

}  // namespace lockstep::bench
