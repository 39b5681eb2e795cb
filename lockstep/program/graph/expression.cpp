#include <lockstep/program/graph/expression.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <vector>

namespace lockstep::program {
namespace {

constexpr int kMaximumExpressionDepth = 100;

// A recursive-descent parser of Python's arithmetic. `failed_` is set by the first part that has no
// value.
class Evaluator {
 public:
  Evaluator(std::string_view text, const Symbols& symbols) : rest_(text), symbols_(symbols) {}

  std::optional<std::int64_t> evaluate() {
    const std::int64_t value = sum();
    skip_blanks();
    if (failed_ || !rest_.empty()) return std::nullopt;
    return value;
  }

 private:
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }

  bool take(std::string_view token) {
    skip_blanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::int64_t fail() {
    failed_ = true;
    rest_ = {};
    return 0;
  }

  std::int64_t add(std::int64_t a, std::int64_t b) {
    return __builtin_add_overflow(a, b, &a) ? fail() : a;
  }
  std::int64_t multiply(std::int64_t a, std::int64_t b) {
    return __builtin_mul_overflow(a, b, &a) ? fail() : a;
  }
  std::int64_t divide(std::int64_t a, std::int64_t b) {
    const auto quotient = floor_div(a, b);
    return quotient ? *quotient : fail();
  }
  std::int64_t modulo(std::int64_t a, std::int64_t b) {
    const auto rest = floor_mod(a, b);
    return rest ? *rest : fail();
  }
  std::int64_t power(std::int64_t base, std::int64_t exponent) {
    if (exponent < 0 || exponent > 62) return fail();
    std::int64_t result = 1;
    for (; exponent > 0 && !failed_; --exponent) result = multiply(result, base);
    return result;
  }

  std::int64_t sum() {
    if (++depth_ > kMaximumExpressionDepth) return fail();
    std::int64_t value = product();
    while (!failed_) {
      if (take("+")) {
        value = add(value, product());
      } else if (take("-")) {
        value = add(value, multiply(-1, product()));
      } else {
        break;
      }
    }
    --depth_;
    return value;
  }

  std::int64_t product() {
    std::int64_t value = factor();
    while (!failed_) {
      skip_blanks();
      if (rest_.starts_with("**")) {
        return fail();  // factor() has taken all powers
      } else if (take("*")) {
        value = multiply(value, factor());
      } else if (take("//")) {
        value = divide(value, factor());
      } else if (take("%")) {
        value = modulo(value, factor());
      } else {
        break;
      }
    }
    return value;
  }

  std::int64_t factor() {
    if (++depth_ > kMaximumExpressionDepth) return fail();
    std::int64_t value = 0;
    if (take("-")) {
      value = multiply(-1, factor());
    } else {
      value = primary();
      if (take("**")) value = power(value, factor());
    }
    --depth_;
    return value;
  }

  std::int64_t primary() {
    skip_blanks();
    if (take("(")) {
      const std::int64_t value = sum();
      return take(")") ? value : fail();
    }
    if (rest_.empty()) return fail();
    const auto first = static_cast<unsigned char>(rest_.front());
    if (std::isdigit(first) != 0) return number();
    if (std::isalpha(first) != 0 || first == '_') {
      const std::string_view name = word();
      return take("(") ? call(name) : symbol(name);
    }
    return fail();
  }

  std::int64_t number() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return fail();
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  std::string_view word() {
    const auto end = std::find_if(rest_.begin(), rest_.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '.';
    });
    const std::string_view result = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    rest_.remove_prefix(result.size());
    return result;
  }

  std::int64_t symbol(std::string_view name) {
    const auto found = symbols_.find(name);
    return found == symbols_.end() ? fail() : found->second;
  }

  // Symbol('s0', positive=True, integer=True)
  std::int64_t quoted_symbol() {
    if (!take("'")) return fail();
    const std::string_view name = rest_.substr(0, rest_.find('\''));
    const std::size_t end = rest_.find(')');
    if (end == std::string_view::npos) return fail();
    rest_.remove_prefix(end + 1);
    return symbol(name);
  }

  std::int64_t call(std::string_view function) {
    if (function == "Symbol") return quoted_symbol();
    std::vector<std::int64_t> operands;
    do {
      operands.push_back(sum());
    } while (!failed_ && take(","));
    if (failed_ || !take(")")) return fail();
    return apply(function.substr(function.rfind('.') + 1), operands);
  }

  std::int64_t apply(std::string_view function, const std::vector<std::int64_t>& operands) {
    std::int64_t value = operands.front();
    if (operands.size() == 1) {
      const bool is_same = function == "Integer" || function == "Mul" || function == "Add" ||
                           function == "Max" || function == "Min";
      return is_same ? value : fail();
    }
    for (std::size_t i = 1; i < operands.size() && !failed_; ++i) {
      value = apply(function, value, operands[i]);
    }
    return value;
  }

  std::int64_t apply(std::string_view function, std::int64_t a, std::int64_t b) {
    if (function == "Add") return add(a, b);
    if (function == "Mul") return multiply(a, b);
    if (function == "Pow" || function == "PowByNatural") return power(a, b);
    if (function == "FloorDiv" || function == "CleanDiv") return divide(a, b);
    if (function == "Mod" || function == "PythonMod") return modulo(a, b);
    if (function == "Max") return std::max(a, b);
    if (function == "Min") return std::min(a, b);
    return fail();
  }

  std::string_view rest_;
  const Symbols& symbols_;
  bool failed_ = false;
  int depth_ = 0;
};

}  // namespace

std::optional<std::string> only_symbol(std::string_view text) {
  constexpr std::string_view prefix = "Symbol('";
  if (text.starts_with(prefix)) {
    text.remove_prefix(prefix.size());
    const std::size_t end = text.find('\'');
    if (end == std::string_view::npos || text.find(')') != text.size() - 1) return std::nullopt;
    text = text.substr(0, end);
  }
  const bool is_name = !text.empty() &&
                       std::isalpha(static_cast<unsigned char>(text.front())) != 0 &&
                       std::all_of(text.begin(), text.end(), [](char c) {
                         return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
                       });
  if (!is_name) return std::nullopt;
  return std::string(text);
}

std::optional<std::int64_t> evaluate(std::string_view text, const Symbols& symbols) {
  return Evaluator(text, symbols).evaluate();
}

std::optional<std::int64_t> floor_div(std::int64_t a, std::int64_t b) {
  if (b == 0 || (a == std::numeric_limits<std::int64_t>::min() && b == -1)) return std::nullopt;
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

std::optional<std::int64_t> floor_mod(std::int64_t a, std::int64_t b) {
  if (b == 0) return std::nullopt;
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace lockstep::program
