// Expressions of sizes, such as the length of an input that is twice that of another.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::program {

/// The symbols that have a value.
using Symbols = std::map<std::string, std::int64_t, std::less<>>;

/// The symbol that `text` consists of: "s0", or "Symbol('s0', positive=True, integer=True)".
/// Nothing if it is more than a symbol.
std::optional<std::string> only_symbol(std::string_view text);

/// The value of `text`, which PyTorch wrote with sympy: either by str(), "2*s0 + 1", or by srepr(),
/// "Add(Mul(Integer(2), Symbol('s0')), Integer(1))". Nothing if a symbol has no value, a function
/// is unknown, or the value is not a whole number of 64 bits.
std::optional<std::int64_t> evaluate(std::string_view text, const Symbols& symbols);

/// Python's a // b, which is rounded towards minus infinity. Nothing if b is 0 or the quotient has
/// more than 64 bits.
std::optional<std::int64_t> floor_div(std::int64_t a, std::int64_t b);

/// Python's a % b, which has the sign of b. Nothing if b is 0.
std::optional<std::int64_t> floor_mod(std::int64_t a, std::int64_t b);

}  // namespace lockstep::program
