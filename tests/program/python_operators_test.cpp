// Arithmetic of sizes, compared with the results of Python 3.11. torch.sym_max() and its like are
// those of PyTorch 2.13.
#include <lockstep/program/python_operators.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using c10::IValue;
using program::python_operator;
using program::PythonOperator;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// "3", "true" or "float 0.5": the type and all digits. NaN has no sign.
std::string text_of_number(const IValue& value) {
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isInt()) return str(value.toInt());
  if (!value.isDouble()) return "not a number";
  if (value.toDouble() != value.toDouble()) return "float nan";
  char text[40];
  std::snprintf(text, sizeof(text), "float %.17g", value.toDouble());
  return text;
}

std::string arguments_text(const std::vector<IValue>& operands) {
  std::string text;
  for (const IValue& operand : operands) {
    text += (text.empty() ? "" : ", ") + text_of_number(operand);
  }
  return '(' + text + ')';
}

TEST(PythonOperators, HavePythonsResults) {
  const struct {
    const char* target;
    std::vector<IValue> operands;
    const char* result;
  } cases[] = {
      {"_operator.add", {2, 3}, "5"},
      {"_operator.add", {-7, 3}, "-4"},
      {"_operator.add", {true, true}, "2"},
      {"_operator.add", {2, 0.5}, "float 2.5"},
      {"_operator.add", {0.1, 0.2}, "float 0.30000000000000004"},
      {"_operator.add", {kMost, -1}, "9223372036854775806"},
      {"_operator.sub", {2, 3}, "-1"},
      {"_operator.sub", {1, 0.25}, "float 0.75"},
      {"_operator.sub", {false, true}, "-1"},
      {"_operator.mul", {-4, 6}, "-24"},
      {"_operator.mul", {3, 0.5}, "float 1.5"},
      {"_operator.mul", {true, 5}, "5"},
      {"_operator.mul", {1e+308, 10.0}, "float inf"},
      {"_operator.floordiv", {7, 2}, "3"},
      {"_operator.floordiv", {-7, 2}, "-4"},
      {"_operator.floordiv", {7, -2}, "-4"},
      {"_operator.floordiv", {-7, -2}, "3"},
      {"_operator.floordiv", {-8, 2}, "-4"},
      {"_operator.floordiv", {kLeast, 3}, "-3074457345618258603"},
      {"_operator.floordiv", {kMost, -1}, "-9223372036854775807"},
      {"_operator.floordiv", {7.5, 2}, "float 3"},
      {"_operator.floordiv", {-7.5, 2}, "float -4"},
      {"_operator.floordiv", {1.0, 0.1}, "float 9"},
      {"_operator.floordiv", {-1.0, 0.1}, "float -10"},
      {"_operator.floordiv", {6, -4.0}, "float -2"},
      {"_operator.floordiv", {-0.5, kInfinity}, "float -1"},
      {"_operator.floordiv", {0.0, -3.0}, "float -0"},
      {"_operator.truediv", {7, 2}, "float 3.5"},
      {"_operator.truediv", {6, 3}, "float 2"},
      {"_operator.truediv", {-1, 4}, "float -0.25"},
      {"_operator.truediv", {1.5, 3}, "float 0.5"},
      {"_operator.truediv", {true, 2}, "float 0.5"},
      {"_operator.mod", {7, 3}, "1"},
      {"_operator.mod", {-7, 3}, "2"},
      {"_operator.mod", {7, -3}, "-2"},
      {"_operator.mod", {-7, -3}, "-1"},
      {"_operator.mod", {6, -3}, "0"},
      {"_operator.mod", {kLeast, 3}, "1"},
      {"_operator.mod", {kMost, -2}, "-1"},
      {"_operator.mod", {kLeast, -1}, "0"},
      {"_operator.mod", {7.5, 2}, "float 1.5"},
      {"_operator.mod", {-7.5, 2}, "float 0.5"},
      {"_operator.mod", {7.5, -2.0}, "float -0.5"},
      {"_operator.mod", {-4.0, 2}, "float 0"},
      {"_operator.mod", {4.0, -2.0}, "float -0"},
      {"_operator.mod", {0.0, -2.0}, "float -0"},
      {"_operator.pow", {2, 10}, "1024"},
      {"_operator.pow", {-2, 3}, "-8"},
      {"_operator.pow", {-2, 63}, "-9223372036854775808"},
      {"_operator.pow", {2, 62}, "4611686018427387904"},
      {"_operator.pow", {0, 0}, "1"},
      {"_operator.pow", {1, kMost}, "1"},
      {"_operator.pow", {-1, kMost}, "-1"},
      {"_operator.pow", {0, kMost}, "0"},
      {"_operator.pow", {true, 2}, "1"},
      {"_operator.pow", {2, -1}, "float 0.5"},
      {"_operator.pow", {-2, -3}, "float -0.125"},
      {"_operator.pow", {2.0, 3}, "float 8"},
      {"_operator.pow", {2, 0.5}, "float 1.4142135623730951"},
      {"_operator.pow", {-2.0, 2}, "float 4"},
      {"_operator.pow", {9, 0.5}, "float 3"},
      {"_operator.pow", {0.0, 0}, "float 1"},
      {"_operator.pow", {kInfinity, 2}, "float inf"},
      {"_operator.neg", {5}, "-5"},
      {"_operator.neg", {-5}, "5"},
      {"_operator.neg", {2.5}, "float -2.5"},
      {"_operator.neg", {0.0}, "float -0"},
      {"_operator.neg", {true}, "-1"},
      {"_operator.pos", {5}, "5"},
      {"_operator.pos", {-2.5}, "float -2.5"},
      {"_operator.pos", {true}, "1"},
      {"_operator.abs", {5}, "5"},
      {"_operator.abs", {-5}, "5"},
      {"_operator.abs", {-2.5}, "float 2.5"},
      {"_operator.abs", {-0.0}, "float 0"},
      {"_operator.abs", {true}, "1"},
      {"_operator.eq", {1, 1}, "true"},
      {"_operator.eq", {1, 1.0}, "true"},
      {"_operator.eq", {1, true}, "true"},
      {"_operator.eq", {2, 3}, "false"},
      {"_operator.eq", {kNaN, kNaN}, "false"},
      {"_operator.ne", {1, 1.0}, "false"},
      {"_operator.ne", {2, 3}, "true"},
      {"_operator.ne", {kNaN, kNaN}, "true"},
      {"_operator.lt", {1, 2}, "true"},
      {"_operator.lt", {2, 2}, "false"},
      {"_operator.lt", {1, 1.5}, "true"},
      {"_operator.lt", {-1, false}, "true"},
      {"_operator.le", {2, 2}, "true"},
      {"_operator.le", {3, 2.5}, "false"},
      {"_operator.gt", {2, 2}, "false"},
      {"_operator.gt", {3, 2.5}, "true"},
      {"_operator.ge", {2, 2}, "true"},
      {"_operator.ge", {kNaN, 1}, "false"},
      {"_operator.and_", {true, false}, "false"},
      {"_operator.and_", {true, true}, "true"},
      {"_operator.and_", {6, 3}, "2"},
      {"_operator.and_", {true, 2}, "0"},
      {"_operator.and_", {-1, 5}, "5"},
      {"_operator.or_", {true, false}, "true"},
      {"_operator.or_", {false, false}, "false"},
      {"_operator.or_", {6, 3}, "7"},
      {"_operator.or_", {true, 2}, "3"},
      {"_operator.not_", {true}, "false"},
      {"_operator.not_", {0}, "true"},
      {"_operator.not_", {3}, "false"},
      {"_operator.not_", {0.0}, "true"},
      {"_operator.lshift", {3, 4}, "48"},
      {"_operator.lshift", {-1, 62}, "-4611686018427387904"},
      {"_operator.lshift", {true, 3}, "8"},
      {"_operator.lshift", {0, 62}, "0"},
      {"_operator.rshift", {13, 2}, "3"},
      {"_operator.rshift", {-13, 2}, "-4"},
      {"_operator.rshift", {5, 63}, "0"},
      {"_operator.rshift", {-5, 1000}, "-1"},
      {"_operator.rshift", {true, 0}, "1"},
      {"math.trunc", {2.5}, "2"},
      {"math.trunc", {-2.5}, "-2"},
      {"math.trunc", {3.5}, "3"},
      {"math.trunc", {-0.4}, "0"},
      {"math.trunc", {7}, "7"},
      {"math.trunc", {true}, "1"},
      {"math.trunc", {1000000000000000.0}, "1000000000000000"},
      {"math.ceil", {2.5}, "3"},
      {"math.ceil", {-2.5}, "-2"},
      {"math.ceil", {3.5}, "4"},
      {"math.ceil", {-0.4}, "0"},
      {"math.ceil", {7}, "7"},
      {"math.ceil", {true}, "1"},
      {"math.ceil", {1000000000000000.0}, "1000000000000000"},
      {"math.floor", {2.5}, "2"},
      {"math.floor", {-2.5}, "-3"},
      {"math.floor", {3.5}, "3"},
      {"math.floor", {-0.4}, "-1"},
      {"math.floor", {7}, "7"},
      {"math.floor", {true}, "1"},
      {"math.floor", {1000000000000000.0}, "1000000000000000"},
      {"builtins.round", {2.5}, "2"},
      {"builtins.round", {-2.5}, "-2"},
      {"builtins.round", {3.5}, "4"},
      {"builtins.round", {-0.4}, "0"},
      {"builtins.round", {7}, "7"},
      {"builtins.round", {true}, "1"},
      {"builtins.round", {1000000000000000.0}, "1000000000000000"},
      {"torch.sym_int", {2.9}, "2"},
      {"torch.sym_int", {-2.9}, "-2"},
      {"torch.sym_int", {3}, "3"},
      {"torch.sym_float", {3}, "float 3"},
      {"torch.sym_float", {2.5}, "float 2.5"},
      {"torch.sym_float", {true}, "float 1"},
      {"torch.sym_float", {kMost}, "float 9.2233720368547758e+18"},
      {"torch.sym_not", {true}, "false"},
      {"torch.sym_not", {false}, "true"},
      {"torch.sym_ite", {true, 1, 2}, "1"},
      {"torch.sym_ite", {false, 1, 2}, "2"},
      {"torch.sym_ite", {true, 1, 2.5}, "1"},
      {"torch.sym_ite", {2, true, false}, "true"},
      {"torch.sym_ite", {0, 1, 2}, "2"},
      {"torch.sym_max", {2, 3}, "3"},
      {"torch.sym_max", {3, 2}, "3"},
      {"torch.sym_max", {-1, -1}, "-1"},
      {"torch.sym_max", {2, 2.5}, "float 2.5"},
      {"torch.sym_max", {3, 2.5}, "float 3"},
      {"torch.sym_max", {2, 2.0}, "float 2"},
      {"torch.sym_max", {2.5, 3}, "float 3"},
      {"torch.sym_max", {true, 0}, "true"},
      {"torch.sym_max", {kNaN, 1}, "float nan"},
      {"torch.sym_max", {1, kNaN}, "float 1"},
      {"torch.sym_min", {2, 3}, "2"},
      {"torch.sym_min", {3, 2}, "2"},
      {"torch.sym_min", {-1, -1}, "-1"},
      {"torch.sym_min", {2, 2.5}, "float 2"},
      {"torch.sym_min", {3, 2.5}, "float 2.5"},
      {"torch.sym_min", {2, 2.0}, "float 2"},
      {"torch.sym_min", {2.5, 3}, "float 2.5"},
      {"torch.sym_min", {true, 0}, "0"},
      {"torch.sym_min", {kNaN, 1}, "float nan"},
      {"torch.sym_min", {1, kNaN}, "float 1"},
      {"torch.sym_sqrt", {4}, "float 2"},
      {"torch.sym_sqrt", {2.0}, "float 1.4142135623730951"},
      {"torch.sym_sqrt", {0}, "float 0"},
      {"torch.sym_sqrt", {kInfinity}, "float inf"},
      {"torch._sym_sqrt", {9}, "float 3"},
      {"torch._sym_log2", {8}, "float 3"},
      {"torch._sym_cos", {0}, "float 1"},
      {"torch._sym_asin", {1}, "float 1.5707963267948966"},
      {"torch._sym_cosh", {0.0}, "float 1"},
  };
  for (const auto& c : cases) {
    const PythonOperator function = python_operator(c.target);
    ASSERT_NE(function, nullptr) << c.target;
    EXPECT_EQ(text_of_number(function(c.operands)), c.result)
        << c.target << arguments_text(c.operands);
  }
}

TEST(PythonOperators, RefuseWhatHasNoResult) {
  const std::string by_zero = "division by zero";
  const std::string large = "the result has more than 64 bits";
  const std::string infinite = "the function has no finite result";
  const std::string missing = "an operand is missing";
  const struct {
    const char* target;
    std::vector<IValue> operands;
    std::string message;
  } cases[] = {
      {"_operator.floordiv", {1, 0}, by_zero},
      {"_operator.floordiv", {1.0, 0}, by_zero},
      {"_operator.floordiv", {1, -0.0}, by_zero},
      {"_operator.floordiv", {kLeast, false}, by_zero},
      {"_operator.truediv", {1, 0}, by_zero},
      {"_operator.truediv", {0.0, 0.0}, by_zero},
      {"_operator.mod", {1, 0}, by_zero},
      {"_operator.mod", {1.5, 0}, by_zero},
      {"_operator.pow", {0, -1}, by_zero},
      {"_operator.pow", {0.0, -2.0}, by_zero},
      {"_operator.add", {kMost, 1}, large},
      {"_operator.add", {kLeast, -1}, large},
      {"_operator.sub", {kLeast, 1}, large},
      {"_operator.sub", {0, kLeast}, large},
      {"_operator.mul", {kMost, 2}, large},
      {"_operator.mul", {kLeast, -1}, large},
      {"_operator.neg", {kLeast}, large},
      {"_operator.abs", {kLeast}, large},
      {"_operator.floordiv", {kLeast, -1}, large},
      {"_operator.pow", {2, 63}, large},
      {"_operator.pow", {10, 20}, large},
      {"_operator.pow", {-2, 64}, large},
      {"_operator.pow", {3, kMost}, large},
      {"_operator.lshift", {1, 63}, large},
      {"_operator.lshift", {kMost, 1}, large},
      {"_operator.lshift", {1, kMost}, large},
      {"math.trunc", {1e19}, large},
      {"math.trunc", {kInfinity}, large},
      {"math.floor", {-1e300}, large},
      {"math.ceil", {kNaN}, large},
      {"builtins.round", {1e20}, large},
      {"torch.sym_int", {kInfinity}, large},
      {"_operator.pow", {-8, 0.5}, infinite},
      {"_operator.pow", {10.0, 400}, infinite},
      {"torch.sym_sqrt", {-1}, infinite},
      {"torch._sym_log2", {0}, infinite},
      {"torch._sym_cosh", {1000}, infinite},
      {"torch._sym_asin", {2}, infinite},
      {"torch._sym_cos", {kInfinity}, infinite},
      {"_operator.add", {1}, missing},
      {"_operator.add", {1.5}, missing},
      {"_operator.floordiv", {1.5}, missing},
      {"_operator.mod", {1.5}, missing},
      {"_operator.pow", {1.5}, missing},
      {"_operator.lt", {1.5}, missing},
      {"torch.sym_min", {1.5}, missing},
      {"_operator.mod", {}, missing},
      {"_operator.pow", {1}, missing},
      {"_operator.truediv", {1}, missing},
      {"_operator.eq", {1}, missing},
      {"_operator.and_", {true}, missing},
      {"_operator.lshift", {1}, missing},
      {"_operator.neg", {}, missing},
      {"_operator.abs", {}, missing},
      {"math.trunc", {}, missing},
      {"torch.sym_max", {1}, missing},
      {"torch.sym_ite", {true, 1}, missing},
      {"torch.sym_ite", {false, 1}, missing},
      {"torch.sym_sqrt", {}, missing},
      {"builtins.round", {2.5, 1}, "rounding to a number of digits is not supported"},
  };
  for (const auto& c : cases) {
    const PythonOperator function = python_operator(c.target);
    ASSERT_NE(function, nullptr) << c.target;
    EXPECT_EQ(message_of<ConfigError>([&] { function(c.operands); }), c.message)
        << c.target << arguments_text(c.operands);
  }
}

TEST(PythonOperators, AreNamedAsInGraphs) {
  for (const char* target :
       {"", "add", "_operator", "_operator.", "operator.add", "_operator.add ", "_operator.matmul",
        "_operator.getitem", "torch.ops.aten.add.Tensor", "math.exp", "builtins.eval"}) {
    EXPECT_EQ(python_operator(target), nullptr) << target;
  }
  const PythonOperator round = python_operator("builtins.round");
  ASSERT_NE(round, nullptr);
  const std::vector<IValue> operands = {2.5, IValue()};
  EXPECT_EQ(text_of_number(round(operands)), "2") << "round(2.5, None)";
}

}  // namespace
}  // namespace lockstep::testing_support
