#include <lockstep/program/guards.h>

#include <torch/types.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/python_operators.h>

namespace lockstep::program {
namespace {

using c10::IValue;
using Expression = Guards::Expression;

constexpr int kMaximumGuardDepth = 100;

struct NotUnderstood : std::runtime_error {
  NotUnderstood() : std::runtime_error("a guard is not understood") {}
};

bool holds(const IValue& value) {
  const IValue negated = python_operator("_operator.not_")(std::span(&value, 1));
  return !negated.toBool();
}

// Parses a condition into functions. Grammar and precedence are Python's.
class GuardParser {
 public:
  GuardParser(std::string_view text, const std::vector<std::string>& leaves)
      : rest_(text), leaves_(leaves) {}

  Expression parse() {
    Expression result = disjunction();
    skip_blanks();
    if (!rest_.empty()) throw NotUnderstood();
    return result;
  }

 private:
  // Counts the nesting, which is that of the calls of this parser.
  class Level {
   public:
    explicit Level(int& depth) : depth_(depth) {
      if (++depth_ > kMaximumGuardDepth) throw NotUnderstood();
    }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };

  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size()));
  }
  bool take(std::string_view token) {
    skip_blanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool take_word(std::string_view word) {
    skip_blanks();
    const bool ends = rest_.size() == word.size() ||
                      (rest_.size() > word.size() && !is_letter(rest_[word.size()]));
    return rest_.starts_with(word) && ends && take(word);
  }
  void expect(std::string_view token) {
    if (!take(token)) throw NotUnderstood();
  }
  static bool is_letter(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  }

  static Expression call(PythonOperator function, std::vector<Expression> operands) {
    if (function == nullptr) throw NotUnderstood();
    return [function, operands = std::move(operands)](Guards::Values values) {
      std::vector<IValue> results;
      results.reserve(operands.size());
      for (const Expression& operand : operands) results.push_back(operand(values));
      return function(results);
    };
  }
  static Expression binary(const char* name, Expression left, Expression right) {
    return call(python_operator(name), {std::move(left), std::move(right)});
  }

  Expression disjunction() {
    const Level level(depth_);
    Expression left = conjunction();
    while (take_word("or")) {
      left = [left, right = conjunction()](Guards::Values values) -> IValue {
        return holds(left(values)) || holds(right(values));
      };
    }
    return left;
  }

  Expression conjunction() {
    Expression left = negation();
    while (take_word("and")) {
      left = [left, right = negation()](Guards::Values values) -> IValue {
        return holds(left(values)) && holds(right(values));
      };
    }
    return left;
  }

  Expression negation() {
    const Level level(depth_);
    if (take_word("not")) return call(python_operator("_operator.not_"), {negation()});
    return comparison();
  }

  const char* comparison_operator() {
    constexpr std::pair<std::string_view, const char*> kOperators[] = {
        {"==", "_operator.eq"}, {"!=", "_operator.ne"}, {"<=", "_operator.le"},
        {">=", "_operator.ge"}, {"<", "_operator.lt"},  {">", "_operator.gt"}};
    for (const auto& [token, name] : kOperators) {
      if (take(token)) return name;
    }
    return nullptr;
  }

  // In a chain, a < b < c, each pair is compared.
  Expression comparison() {
    Expression left = sum();
    Expression result;
    while (const char* name = comparison_operator()) {
      Expression right = sum();
      Expression pair = binary(name, left, right);
      result = !result ? pair : [result, pair](Guards::Values values) -> IValue {
        return holds(result(values)) && holds(pair(values));
      };
      left = std::move(right);
    }
    return result ? result : left;
  }

  Expression sum() {
    Expression left = product();
    for (;;) {
      if (take("+")) {
        left = binary("_operator.add", std::move(left), product());
      } else if (take("-")) {
        left = binary("_operator.sub", std::move(left), product());
      } else {
        return left;
      }
    }
  }

  Expression product() {
    Expression left = factor();
    for (;;) {
      if (take("*")) {
        left = binary("_operator.mul", std::move(left), factor());
      } else if (take("//")) {
        left = binary("_operator.floordiv", std::move(left), factor());
      } else if (take("/")) {
        left = binary("_operator.truediv", std::move(left), factor());
      } else if (take("%")) {
        left = binary("_operator.mod", std::move(left), factor());
      } else {
        return left;
      }
    }
  }

  Expression factor() {
    const Level level(depth_);
    if (take("-")) return call(python_operator("_operator.neg"), {factor()});
    if (take("+")) return factor();
    Expression base = primary();
    if (take("**")) return binary("_operator.pow", std::move(base), factor());
    return base;
  }

  Expression primary() {
    if (take("(")) {
      Expression inner = disjunction();
      expect(")");
      return inner;
    }
    skip_blanks();
    if (rest_.empty()) throw NotUnderstood();
    const char first = rest_.front();
    if (std::isdigit(static_cast<unsigned char>(first)) != 0 || first == '.') return number();
    if (take_word("True")) return [](Guards::Values) { return IValue(true); };
    if (take_word("False")) return [](Guards::Values) { return IValue(false); };
    if (rest_.starts_with("L[")) return argument();
    return function();
  }

  Expression number() {
    const auto end =
        std::find_if(rest_.begin(), rest_.end(), [](char c) { return !is_letter(c) && c != '.'; });
    std::string_view text = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    // 1e-05
    if ((text.ends_with('e') || text.ends_with('E')) && text.size() < rest_.size()) {
      std::size_t more = text.size() + 1;
      while (more < rest_.size() && std::isdigit(static_cast<unsigned char>(rest_[more])) != 0) {
        ++more;
      }
      text = rest_.substr(0, more);
    }
    rest_.remove_prefix(text.size());
    IValue value;
    const char* const stop = text.data() + text.size();
    if (text.find_first_of(".eE") == std::string_view::npos) {
      std::int64_t whole = 0;
      const auto [read, error] = std::from_chars(text.data(), stop, whole);
      if (error != std::errc() || read != stop) throw NotUnderstood();
      value = whole;
    } else {
      double real = 0;
      const auto [read, error] = std::from_chars(text.data(), stop, real);
      if (error != std::errc() || read != stop) throw NotUnderstood();
      value = real;
    }
    return [value](Guards::Values) { return value; };
  }

  // math.trunc(...), torch.sym_float(...), Max(...)
  Expression function() {
    const auto end =
        std::find_if(rest_.begin(), rest_.end(), [](char c) { return !is_letter(c) && c != '.'; });
    std::string name(rest_.substr(0, static_cast<std::size_t>(end - rest_.begin())));
    rest_.remove_prefix(name.size());
    constexpr std::pair<std::string_view, const char*> kNames[] = {
        {"max", "torch.sym_max"}, {"min", "torch.sym_min"},   {"Max", "torch.sym_max"},
        {"Min", "torch.sym_min"}, {"int", "torch.sym_int"},   {"float", "torch.sym_float"},
        {"abs", "_operator.abs"}, {"round", "builtins.round"}};
    for (const auto& [known, meaning] : kNames) {
      if (name == known) name = meaning;
    }
    expect("(");
    std::vector<Expression> operands;
    do {
      operands.push_back(disjunction());
    } while (take(","));
    expect(")");
    return call(python_operator(name), std::move(operands));
  }

  // L['batch']['image'].size()[0]
  Expression argument() {
    expect("L");
    std::string leaf;
    while (take("[")) {
      skip_blanks();
      const bool is_quoted = rest_.starts_with('\'') || rest_.starts_with('"');
      if (is_quoted) rest_.remove_prefix(1);
      const std::size_t end = rest_.find_first_of(is_quoted ? "'\"" : "]");
      if (end == std::string_view::npos) throw NotUnderstood();
      leaf += str(leaf.empty() ? "" : ".", rest_.substr(0, end));
      rest_.remove_prefix(end + (is_quoted ? 1 : 0));
      expect("]");
    }
    const std::size_t place = place_of(leaf);
    if (!take(".")) {
      return [place](Guards::Values values) { return values[place]; };
    }
    if (take("size()["))
      return dimension_property(
          place, [](const torch::Tensor& tensor, std::int64_t i) { return tensor.size(i); });
    if (take("stride()[")) {
      return dimension_property(
          place, [](const torch::Tensor& tensor, std::int64_t i) { return tensor.stride(i); });
    }
    if (take("storage_offset()")) {
      return [place](Guards::Values values) -> IValue {
        return values[place].toTensor().storage_offset();
      };
    }
    throw NotUnderstood();
  }

  // Arguments of *xs and **options are called xs_0, xs_1, and by their own names.
  std::size_t place_of(const std::string& leaf) const {
    std::string joined = leaf;
    std::replace(joined.begin(), joined.end(), '.', '_');
    for (const std::string& name : {leaf, joined, leaf.substr(leaf.find('.') + 1)}) {
      const auto found = std::find(leaves_.begin(), leaves_.end(), name);
      if (found != leaves_.end()) return static_cast<std::size_t>(found - leaves_.begin());
    }
    throw NotUnderstood();
  }

  Expression dimension_property(std::size_t place,
                                std::int64_t (*property)(const torch::Tensor&, std::int64_t)) {
    std::int64_t dimension = 0;
    const auto [read, error] =
        std::from_chars(rest_.data(), rest_.data() + rest_.size(), dimension);
    if (error != std::errc()) throw NotUnderstood();
    rest_.remove_prefix(static_cast<std::size_t>(read - rest_.data()));
    expect("]");
    return [place, dimension, property](Guards::Values values) -> IValue {
      return property(values[place].toTensor(), dimension);
    };
  }

  std::string_view rest_;
  const std::vector<std::string>& leaves_;
  int depth_ = 0;
};

// The condition as a user knows its arguments: "x.size()[0]" for "L['x'].size()[0]".
std::string readable(std::string text) {
  for (std::size_t at = text.find("L['"); at != std::string::npos; at = text.find("L['", at)) {
    const std::size_t end = text.find("']", at);
    if (end == std::string::npos) break;
    text = text.substr(0, at) + text.substr(at + 3, end - at - 3) + text.substr(end + 2);
  }
  return formats::printable(text);
}

}  // namespace

Guards::Guards(const std::vector<std::string>& conditions, const std::vector<std::string>& leaves,
               std::string name)
    : name_(std::move(name)) {
  for (const std::string& condition : conditions) {
    try {
      guards_.push_back({readable(condition), GuardParser(condition, leaves).parse()});
    } catch (const NotUnderstood&) {
      throw CheckpointError(
          str(name_, ": the guard '", readable(condition), "' of the export is not supported"));
    }
  }
}

void Guards::check(Values values) const {
  for (const Guard& guard : guards_) {
    if (holds(guard.condition(values))) continue;
    throw ConfigError(
        str(name_, ": the arguments do not fulfil what the export relied on: ", guard.text));
  }
}

}  // namespace lockstep::program
