// Parses and formats sizes in bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

/// Parses "4", "4B", "64KiB", "1.5MiB", "2GiB", "1T" (powers of 1024), "64kB", "1MB", "2GB" (powers
/// of 1000). Throws ConfigError, beginning with `option`, for anything else, for less than one byte
/// and for more than 1 TiB.
std::int64_t parse_bytes(const std::string& option, const std::string& text);

/// Parses sizes separated by commas, each as in parse_bytes().
std::vector<std::int64_t> parse_sizes(const std::string& option, const std::string& text);

/// "4 B", "64 KiB", "1.5 MiB".
std::string binary_bytes_text(double bytes);

/// "0.12", "4.56", "123", "45,678": three significant digits.
std::string short_number(double value);

}  // namespace lockstep::bench
