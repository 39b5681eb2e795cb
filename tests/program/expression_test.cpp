#include <lockstep/program/graph/expression.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::testing_support {
namespace {

using program::evaluate;
using program::only_symbol;
using program::Symbols;

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

const Symbols& known_symbols() {
  static const Symbols symbols = {{"s0", 7},       {"s77", 3},          {"u_1", -7},
                                  {"zero", 0},     {"big", kLargest},   {"small", kSmallest},
                                  {"minus_1", -1}, {"s0_not_s77", 100}, {"Max", 5}};
  return symbols;
}

std::string copies(int count, const std::string& text) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

TEST(Expression, IsOnlyASymbol) {
  const std::pair<std::string, std::optional<std::string>> cases[] = {
      {"s0", "s0"},
      {"u_1", "u_1"},
      {"Symbol('s77')", "s77"},
      {"Symbol('s77', positive=True, integer=True)", "s77"},
      {"", std::nullopt},
      {"7", std::nullopt},
      {"7s", std::nullopt},
      {"_s", std::nullopt},
      {"s0 ", std::nullopt},
      {"s0 + 1", std::nullopt},
      {"2*s0", std::nullopt},
      {"(s0)", std::nullopt},
      {"-s0", std::nullopt},
      {"Integer(2)", std::nullopt},
      {"Symbol('s77'", std::nullopt},
      {"Symbol('s77)", std::nullopt},
      {"Symbol('", std::nullopt},
      {"Symbol('')", std::nullopt},
      {"Symbol('2*s0')", std::nullopt},
      {"Symbol(s77)", std::nullopt},
      {"Symbol('s77') ", std::nullopt},
      {"Mul(Integer(2), Symbol('s77'))", std::nullopt},
      {"Symbol('s77') + Symbol('s0')", std::nullopt},
  };
  for (const auto& [text, symbol] : cases) EXPECT_EQ(only_symbol(text), symbol) << text;
}

// Values of Python for s0 = 7, s77 = 3 and u_1 = -7.
TEST(Expression, HasPythonsValue) {
  const std::pair<std::string, std::int64_t> cases[] = {
      {"0", 0},
      {"s0", 7},
      {"  s0  ", 7},
      {"2*s0 + 1", 15},
      {"2 * s0+1", 15},
      {"1 + 2*s0", 15},
      {"2*(s0 + 1)", 16},
      {"((s0))", 7},
      {"s0 - s77 - 1", 3},
      {"s0 - (s77 - 1)", 5},
      {"-s0 + 10", 3},
      {"s0 - -s77", 10},
      {"s0*-s77", -21},
      {"--s0", 7},
      {"s0//2", 3},
      {"u_1//2", -4},
      {"s0//-2", -4},
      {"u_1//-2", 3},
      {"s0//s77*s77 + s0 % s77", 7},
      {"2*s0//4", 3},
      {"2*(s0//4)", 2},
      {"s0 % 4", 3},
      {"u_1 % 4", 1},
      {"s0 % -4", -1},
      {"u_1 % -4", -3},
      {"2**10", 1024},
      {"2*s0**2", 98},
      {"2**s77**2", 512},
      {"-2**2", -4},
      {"(-2)**3", -8},
      {"s0**0", 1},
      {"s0**1", 7},
      {"2**62", std::int64_t{1} << 62},
      {"Max(1, s0)", 7},
      {"Max(1, s0, 9, s77)", 9},
      {"Min(s0, s77, 2*s77)", 3},
      {"Mod(s0, 4)", 3},
      {"FloorDiv(s0, 2)", 3},
      {"s0_not_s77", 100},
      {"Max", 5},
      {"Max + Max(1, 2)", 7},
      {"9223372036854775807", kLargest},
      {"-9223372036854775807 - 1", kSmallest},
      {"big//-1", -kLargest},
      {"small % -1", 0},
      {"small % 3", 1},
      {"big % -2", -1},
      {"small//3", -3074457345618258603},
  };
  for (const auto& [text, value] : cases) {
    EXPECT_EQ(evaluate(text, known_symbols()), value) << text;
  }
}

// The notation of sympy's srepr(), which PyTorch writes since 2.7.
TEST(Expression, HasTheSameValueInTheOtherNotation) {
  const std::string s0 = "Symbol('s0', positive=True, integer=True)";
  const std::string s77 = "Symbol('s77', integer=True)";
  const std::pair<std::string, std::int64_t> cases[] = {
      {s0, 7},
      {"Integer(5)", 5},
      {"Integer(-5)", -5},
      {"Add(Mul(Integer(2), " + s0 + "), Integer(1))", 15},
      {"Add(" + s0 + ", " + s77 + ", Integer(1))", 11},
      {"Mul(Integer(-1), " + s0 + ")", -7},
      {"Mul(Integer(2), Integer(3), " + s77 + ")", 18},
      {"Pow(" + s0 + ", Integer(2))", 49},
      {"torch.utils._sympy.functions.FloorDiv(" + s0 + ", Integer(2))", 3},
      {"FloorDiv(Add(" + s0 + ", Integer(-1)), Integer(2))", 3},
      {"torch.utils._sympy.functions.CleanDiv(" + s0 + ", Integer(7))", 1},
      {"torch.utils._sympy.functions.PythonMod(Mul(Integer(-1), " + s0 + "), Integer(4))", 1},
      {"torch.utils._sympy.functions.Mod(" + s0 + ", Integer(4))", 3},
      {"torch.utils._sympy.functions.PowByNatural(Integer(2), " + s77 + ")", 8},
      {"Max(Integer(1), " + s0 + ")", 7},
      {"torch.utils._sympy.functions.Min(" + s0 + ", " + s77 + ")", 3},
      {"Symbol('s0')*2 + Symbol('s77')", 17},
  };
  for (const auto& [text, value] : cases) {
    EXPECT_EQ(evaluate(text, known_symbols()), value) << text;
  }
}

TEST(Expression, HasNoValueBeyond64Bits) {
  for (const char* text : {
           "9223372036854775808",
           "99999999999999999999999999",
           "9223372036854775807 + 1",
           "big + s0",
           "small - 1",
           "2*big",
           "-small",
           "small//-1",
           "3037000500*3037000500",
           "3037000500**2",
           "10**19",
           "2**63",
           "2**1000000000000000000",
           "Mul(Integer(4611686018427387904), Integer(2))",
           "Pow(Integer(10), Integer(30))",
       }) {
    EXPECT_EQ(evaluate(text, known_symbols()), std::nullopt) << text;
  }
}

TEST(Expression, HasNoValueWithoutAMeaning) {
  for (const char* text : {"unknown",
                           "s0 + unknown",
                           "Symbol('unknown')",
                           "sin(s0)",
                           "Rational(1, 2)",
                           "Float(2)",
                           "IntTrueDiv(s0, 7)",
                           "ToFloat(s0)",
                           "s0/7",
                           "1.5",
                           "2e3",
                           "oo",
                           "True",
                           "s0//0",
                           "s0//zero",
                           "s0 % 0",
                           "Mod(s0, 0)",
                           "FloorDiv(s0, zero)",
                           "2**-1",
                           "s0**minus_1",
                           "Pow(2)",
                           "Mod(5)",
                           "FloorDiv(5)",
                           "Integer(1, 2)",
                           "Where(1, 2)"}) {
    EXPECT_EQ(evaluate(text, known_symbols()), std::nullopt) << text;
  }
}

TEST(Expression, HasNoValueIfItIsDamaged) {
  for (const char* text : {"",
                           " ",
                           "+",
                           "-",
                           "+s0",
                           "s0 +",
                           "s0 -",
                           "2*",
                           "*2",
                           "2**",
                           "2***3",
                           "2** *3",
                           "s0//",
                           "//2",
                           "s0 %",
                           "s0 s77",
                           "2s0",
                           "(",
                           ")",
                           "()",
                           "(s0",
                           "s0)",
                           "(s0 + 1",
                           "((s0)",
                           "(s0))",
                           "s0(1)",
                           "7(1)",
                           "Max(",
                           "Max()",
                           "Max(1",
                           "Max(1,",
                           "Max(1,)",
                           "Max(,1)",
                           "Max(1 2)",
                           "Max(1, 2",
                           "Max(1, 2))",
                           "Symbol",
                           "Symbol(",
                           "Symbol()",
                           "Symbol('",
                           "Symbol('s0",
                           "Symbol('s0'",
                           "Symbol('s0)",
                           "Symbol(s0)",
                           "Symbol(\"s0\")",
                           "Integer(",
                           "Integer(2",
                           "Integer(two)",
                           "s0,",
                           "s0;",
                           "'s0'",
                           "[s0]",
                           "s0\n",
                           "s0\t",
                           "\xff",
                           "s0 == 7",
                           "s0 < 8",
                           "s0.x",
                           "s0.",
                           ".s0",
                           ".5",
                           "s0 & 1",
                           "__import__('os')"}) {
    EXPECT_EQ(evaluate(text, known_symbols()), std::nullopt) << text;
  }
  EXPECT_EQ(evaluate(std::string_view("s0\0", 3), known_symbols()), std::nullopt);
}

// Each prefix of a text either has no value or is an expression itself. None reads beyond its end,
// which is the end of an allocation.
TEST(Expression, MayEndAnywhere) {
  const std::string text =
      "Add(Mul(Integer(2), Symbol('s0', positive=True)), Max(s77, 3)**2 - (1 + 4//2) % 5)";
  ASSERT_EQ(evaluate(text, known_symbols()), 14 + 9 - 3);
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto copy = std::make_unique<char[]>(size);
    std::copy_n(text.begin(), size, copy.get());
    EXPECT_EQ(evaluate({copy.get(), size}, known_symbols()), std::nullopt) << size;
  }
}

TEST(Expression, HasABoundedDepth) {
  EXPECT_EQ(evaluate(copies(40, "(") + "s0" + copies(40, ")"), known_symbols()), 7);
  EXPECT_EQ(evaluate(copies(40, "Add(1, ") + "s0" + copies(40, ")"), known_symbols()), 47);
  EXPECT_EQ(evaluate(copies(80, "-") + "s0", known_symbols()), 7);
  EXPECT_EQ(evaluate(copies(10000, "1 + ") + "s0", known_symbols()), 10007) << "is not deep";
  for (const char* opened : {"(", "-", "Add(1, ", "2**", "Max(", "Symbol("}) {
    EXPECT_EQ(evaluate(copies(100'000, opened) + "s0", known_symbols()), std::nullopt) << opened;
  }
  EXPECT_EQ(evaluate(copies(100'000, "(") + "s0" + copies(100'000, ")"), known_symbols()),
            std::nullopt);
}

TEST(FloorDivision, IsThatOfPython) {
  const struct {
    std::int64_t a, b;
    std::optional<std::int64_t> quotient, rest;
  } cases[] = {
      {7, 2, 3, 1},
      {-7, 2, -4, 1},
      {7, -2, -4, -1},
      {-7, -2, 3, -1},
      {6, -3, -2, 0},
      {0, 5, 0, 0},
      {1, 0, {}, {}},
      {kSmallest, -1, {}, 0},
      {kSmallest, 2, kSmallest / 2, 0},
      {kLargest, -1, -kLargest, 0},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(program::floor_div(c.a, c.b), c.quotient) << c.a << " // " << c.b;
    EXPECT_EQ(program::floor_mod(c.a, c.b), c.rest) << c.a << " % " << c.b;
  }
}

}  // namespace
}  // namespace lockstep::testing_support
