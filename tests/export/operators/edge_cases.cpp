// Special numbers: NaN, infinities, zeros of both signs, arguments with a tiny or a huge result.
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/nn/functional/activation.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

using Function = Tensor (*)(const Tensor& x);

// Numbers of all magnitudes and both signs.
const std::vector<double> kOrdinary = {
    -1e4,  -90,  -30,  -20, -15, -9, -5,     -3, -2.9999, -1, -.5, -.1, -1e-3, -1e-7, -1e-12,
    1e-12, 1e-7, 1e-3, .1,  .5,  1,  2.9999, 3,  5,       9,  15,  20,  30,    90,    1e4};
const std::vector<double> kSpecial = {kNan, kInf, -kInf, -0.0, 0.0, 1, -1, kNan, 0.5, -0.5};

// Activations: their tails, and what becomes of NaN, infinities and the sign of a zero.
void add_activation_edges(CaseList& cases) {
  struct Activation {
    const char* op;
    Function function;
  };
  const std::vector<Activation> activations = {
      {"sigmoid", [](const Tensor& x) { return x.sigmoid(); }},
      {"log_sigmoid", [](const Tensor& x) { return at::log_sigmoid(x); }},
      {"softplus", [](const Tensor& x) { return at::softplus(x); }},
      {"silu", [](const Tensor& x) { return at::silu(x); }},
      {"mish", [](const Tensor& x) { return at::mish(x); }},
      {"elu", [](const Tensor& x) { return at::elu(x, 1.3); }},
      {"elu", [](const Tensor& x) { return at::elu(x, 1.3, 0.7, 2); }},
      {"selu", [](const Tensor& x) { return at::selu(x); }},
      {"celu", [](const Tensor& x) { return at::celu(x, 1.7); }},
      {"hardsigmoid", [](const Tensor& x) { return at::hardsigmoid(x); }},
      {"hardswish", [](const Tensor& x) { return at::hardswish(x); }},
      {"hardtanh", [](const Tensor& x) { return at::hardtanh(x, -0.5, 0.7); }},
      {"relu", [](const Tensor& x) { return x.relu(); }},
      {"relu6", [](const Tensor& x) { return at::relu6(x); }},
      {"leaky_relu", [](const Tensor& x) { return at::leaky_relu(x, 0.01); }},
      {"rrelu", [](const Tensor& x) { return at::rrelu(x, 0.1, 0.3, false); }},
      {"prelu", [](const Tensor& x) { return at::prelu(x, torch::full({1}, 0.3)); }},
      {"hardshrink", [](const Tensor& x) { return at::hardshrink(x, 0.5); }},
      {"softshrink", [](const Tensor& x) { return at::softshrink(x, 0.5); }},
      {"threshold", [](const Tensor& x) { return at::threshold(x, 0.2, -3); }},
      {"clamp", [](const Tensor& x) { return x.clamp(-0.5, 0.5); }},
      {"clamp", [](const Tensor& x) { return x.clamp(3, 2); }},
      {"tanh", [](const Tensor& x) { return x.tanh(); }}};
  for (const Activation& each : activations) {
    const std::string_view op = each.op;
    auto& ordinary = cases.add(each.op, each.function, {rows_of(kOrdinary)});
    // mish() of -90 is ninety times an exponential with fewer digits than normal numbers have.
    if (op == "mish") ordinary.negligible = 1e-35;
    // LibTorch's own signs of zeros differ between its vectorised loops and their rests.
    cases.add(each.op, each.function, {rows_of(kSpecial)}).signed_zeros =
        op != "log_sigmoid" && op != "softshrink";
  }
  // LibTorch's own values for these have no more digits: 1 + erf(x) is rounded. On processors with
  // AVX-512, and only there, that of infinity is NaN.
  cases.add("gelu", [](const Tensor& x) { return at::gelu(x); },
            {rows_of({kNan, -kInf, -0.0, 0.0, 1, -1, 0.5, -0.5})});
  cases.add("gelu", [](const Tensor& x) { return at::gelu(x, "tanh"); }, {rows_of(kSpecial)});
  cases.add("glu", [](const Tensor& x) { return at::glu(at::stack({x, x}, 2), 2); },
            {rows_of(kOrdinary)});
  cases.add("logit", [](const Tensor& x) { return x.logit(0.1); }, {rows_of(kSpecial)});
  // A slope in double has more digits than an attribute of ONNX.
  cases
      .add("leaky_relu", [](const Tensor& x) { return at::leaky_relu(x, 0.01); },
           {rows_of(kOrdinary, torch::kDouble)})
      .tolerance = 1e-14;
}

// Arguments whose exponentials and squares are beyond the range of float32 or of float16.
void add_large_arguments(CaseList& cases) {
  const std::vector<double> large = {-6e4, -700, -100, -89, -80, -17, -12, -9, -1,
                                     1,    9,    12,   17,  80,  89,  100, 6e4};
  const std::vector<std::pair<const char*, Function>> functions = {
      {"softplus", [](const Tensor& x) { return at::softplus(x, 1, 100); }},
      {"softplus", [](const Tensor& x) { return at::softplus(x, 0.5, 1000); }},
      {"softplus", [](const Tensor& x) { return at::softplus(x, 3, 10); }},
      {"log_sigmoid", [](const Tensor& x) { return at::log_sigmoid(x); }},
      {"mish", [](const Tensor& x) { return at::mish(x); }},
      {"silu", [](const Tensor& x) { return at::silu(x); }},
      {"glu", [](const Tensor& x) { return at::glu(at::stack({x, x}, 2), 2); }},
      {"hardswish", [](const Tensor& x) { return at::hardswish(x); }},
      {"elu", [](const Tensor& x) { return at::elu(x, 1.3); }},
      {"tanh", [](const Tensor& x) { return x.tanh(); }},
      {"softmax", [](const Tensor& x) { return x.softmax(1); }},
      {"log_softmax", [](const Tensor& x) { return x.log_softmax(1); }},
      {"logsumexp", [](const Tensor& x) { return x.logsumexp(1); }}};
  // The results near 0 are smaller than normal numbers.
  for (const auto& [op, function] : functions) {
    cases.add(op, function, {rows_of(large)}).negligible = 1e-35;
  }
  cases.add("logsumexp", [](const Tensor& x) { return x.logsumexp(1); },
            {rows_of({1000, 1000.5, -3})});
  cases.add("logsumexp", [](const Tensor& x) { return x.logsumexp(1); },
            {rows_of({-1000, -1001, -1002})});
  for (const char* const approximate : {"none", "tanh"}) {
    cases
        .add("gelu", [approximate](const Tensor& x) { return at::gelu(x, approximate); },
             {rows_of({-6e4, -300, -50, 0.5, 50, 300, 6e4})})
        .adds_terms = true;
  }
  // LibTorch multiplies float16 by numbers beyond its range, also in tensors without dimensions,
  // but rounds the factor of a sum.
  const MakeInput factors = rows_of({6e4, 3e4, 1, -5e4});
  cases.add("mul", [](const Tensor& x) { return x * 1e-6; }, {factors});
  cases.add("mul", [](const Tensor& x) { return x * 1e5; }, {factors});
  cases.add("mul", [](const Tensor& x) { return x * torch::tensor(1e-6F); }, {factors});
  cases.add("div", [](const Tensor& x) { return x / 1e6; }, {factors});
  cases.add("div", [](const Tensor& x) { return x / torch::tensor(1e6F); }, {factors});
  cases.add("add", [](const Tensor& x) { return at::zeros_like(x).add(x, 1e-6); }, {factors});
  cases.add("rsub", [](const Tensor& x) { return at::rsub(x, 0, 1e-6); }, {factors});
  cases.add(
      "addcmul",
      [](const Tensor& x) { return at::addcmul(at::zeros_like(x), x, at::ones_like(x), 1e-6); },
      {factors});
}

void add_function_edges(CaseList& cases) {
  struct Edge {
    const char* op;
    Function function;
    std::vector<double> numbers;
  };
  const std::vector<double> near_zero = {0.0,   -0.0,  1e-30, -1e-30, 1e-12, -1e-12, 1e-8, -1e-8,
                                         1e-5,  -1e-5, 1e-3,  -1e-3,  0.1,   -0.1,   0.5,  -0.5,
                                         -0.99, 1,     -1,    2,      30,    80,     kInf, kNan};
  const std::vector<double> tail = {0, -0.0, 1e-8, -1e-8, 0.1, 0.5, 1,  2,    3,     4,   5,
                                    6, 8,    9,    -1,    -3,  -6,  30, kInf, -kInf, kNan};
  const std::vector<double> powers = {1,    2,    4,   8,    1024, 0.5,  0.125, 1e-3, 1e-2, 10,
                                      1000, 1e10, 0.0, -0.0, -1,   kInf, kNan,  3,    7,    1e30};
  const std::vector<double> halves = {-2.5, -1.5, -0.5, -0.0, 0, 0.5, 1.5, 2.5, 1e9, kInf, kNan};
  const std::vector<Edge> edges = {
      {"log1p", [](const Tensor& x) { return x.log1p(); }, near_zero},
      {"expm1", [](const Tensor& x) { return x.expm1(); }, near_zero},
      {"erfc", [](const Tensor& x) { return x.erfc(); }, tail},
      {"log2", [](const Tensor& x) { return x.log2(); }, powers},
      {"log2", [](const Tensor& x) { return x.log2().floor(); }, powers},
      {"log10", [](const Tensor& x) { return x.log10(); }, powers},
      {"sign", [](const Tensor& x) { return x.sign(); }, kSpecial},
      {"sgn", [](const Tensor& x) { return x.sgn(); }, kSpecial},
      {"round", [](const Tensor& x) { return x.round(); }, halves},
      {"trunc", [](const Tensor& x) { return x.trunc(); }, halves},
      {"frac", [](const Tensor& x) { return x.frac(); }, halves},
      {"floor", [](const Tensor& x) { return x.floor(); }, halves},
      {"ceil", [](const Tensor& x) { return x.ceil(); }, halves},
      {"rsqrt", [](const Tensor& x) { return x.rsqrt(); }, powers},
      {"reciprocal", [](const Tensor& x) { return x.reciprocal(); }, kSpecial},
      {"nan_to_num", [](const Tensor& x) { return x.nan_to_num(); }, kSpecial},
      {"pow", [](const Tensor& x) { return x.pow(0.5); }, kSpecial},
      {"pow", [](const Tensor& x) { return x.pow(-0.5); }, kSpecial},
      {"pow", [](const Tensor& x) { return x.pow(-1); }, kSpecial},
      {"pow", [](const Tensor& x) { return x.pow(-2); }, kSpecial},
      {"pow", [](const Tensor& x) { return x.pow(3); }, kSpecial},
      {"pow", [](const Tensor& x) { return x.pow(0); }, kSpecial},
      {"exp", [](const Tensor& x) { return x.exp(); }, tail},
      {"nan_to_num", [](const Tensor& x) { return x.nan_to_num(kInf, 8, -9); }, kSpecial},
      {"erf", [](const Tensor& x) { return x.erf(); }, near_zero}};
  for (const Edge& each : edges) {
    cases.add(each.op, each.function, {rows_of(each.numbers)});
  }
  const std::vector<Edge> in_double = {edges[0], edges[1], edges[2], edges[3], edges[5]};
  for (const Edge& each : in_double) {
    auto& added = cases.add(each.op, each.function, {rows_of(each.numbers, torch::kDouble)});
    added.tolerance = 1e-12;
  }
  cases.add("nan_to_num", [](const Tensor& x) { return x.nan_to_num(); },
            {rows_of(kSpecial, torch::kDouble)});
}

void add_division_edges(CaseList& cases) {
  const std::vector<double> a = {1, 1,  -1, 0.3, 0.7,  6, -6, 5.5,  -5.5, 0,    -0.0, 0,
                                 7, -7, 7,  -7,  1e10, 1, -1, kInf, 1,    kNan, 1,    0.5};
  const std::vector<double> b = {0.1,  -0.1, 0.1,   0.1, 0.1, 2, 2, 2, 2,    3, 3, -3,
                                 kInf, kInf, -kInf, 2,   0.3, 0, 0, 2, kNan, 1, 3, -2};
  const std::vector<MakeInput> floats_of = {rows_of(a), rows_of(b)};
  const std::vector<MakeInput> doubles_of = {rows_of(a, torch::kDouble),
                                             rows_of(b, torch::kDouble)};
  const std::vector<MakeInput> whole = {rows_of({7, -7, 7, -7, 6, -6, 0, 1, -1, 9}, torch::kLong),
                                        rows_of({2, 2, -2, -2, 3, 3, 5, 4, 4, -9}, torch::kLong)};
  const std::vector<MakeInput> narrow = {rows_of({7, -7, 7, -7, 6, -6, 0, 1, -1, 9}, torch::kInt),
                                         rows_of({2, 2, -2, -2, 3, 3, 5, 4, 4, -9}, torch::kInt)};
  for (const auto& inputs : {floats_of, doubles_of, whole, narrow}) {
    const auto two = [&](const char* op, Tensor (*function)(const Tensor&, const Tensor&)) {
      cases.add(op, function, inputs);
    };
    two("floor_divide", [](const Tensor& x, const Tensor& y) { return x.floor_divide(y); });
    two("div", [](const Tensor& x, const Tensor& y) { return x.div(y, "floor"); });
    two("div", [](const Tensor& x, const Tensor& y) { return x.div(y, "trunc"); });
    two("remainder", [](const Tensor& x, const Tensor& y) { return x.remainder(y); });
    two("fmod", [](const Tensor& x, const Tensor& y) { return x.fmod(y); });
  }
  cases.add("div", [](const Tensor& x, const Tensor& y) { return x / y; }, whole);
  // The first quotient whose difference from the remainder is out of range.
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  cases.add("floor_divide", [](const Tensor& x) { return (x + kLeast).floor_divide(3); },
            {integers(0, 2, {4})});
}

// LibTorch does not round the number to float16, which would change a floor or a branch, except in
// remainder() and fmod().
void add_numbers_beside_float16(CaseList& cases) {
  struct Edge {
    const char* op;
    Function function;
  };
  const std::vector<Edge> edges = {
      {"floor_divide", [](const Tensor& x) { return x.floor_divide(0.1); }},
      {"floor_divide", [](const Tensor& x) { return x.floor_divide(-0.7); }},
      {"floor_divide", [](const Tensor& x) { return x.floor_divide(torch::tensor(0.1F)); }},
      {"floor_divide", [](const Tensor& x) { return x.floor_divide(torch::tensor(0.1)); }},
      {"floor_divide",
       [](const Tensor& x) { return x.floor_divide(x.amax().to(torch::kDouble) / 70); }},
      {"div", [](const Tensor& x) { return x.div(0.3, "floor"); }},
      {"div", [](const Tensor& x) { return x.div(0.1, "trunc"); }},
      {"div", [](const Tensor& x) { return x.div(0.3, "trunc"); }},
      {"div", [](const Tensor& x) { return x.div(torch::tensor(0.3F), "floor"); }},
      {"remainder", [](const Tensor& x) { return x.remainder(0.1); }},
      {"fmod", [](const Tensor& x) { return x.fmod(0.1); }},
      {"threshold", [](const Tensor& x) { return at::threshold(x, 0.3, -2); }},
      {"softshrink", [](const Tensor& x) { return at::softshrink(x, 0.3); }},
      {"hardshrink", [](const Tensor& x) { return at::hardshrink(x, 0.3); }}};
  const std::vector<double> numbers = {1, 2, 3, 4, 5, 7, 0.3, 0.7, 0.9, -0.3, -1, -5, 0};
  for (const Edge& each : edges) {
    auto& added = cases.add(each.op, each.function, {rows_of(numbers, torch::kHalf)});
    added.tolerance = 1e-3;
    added.negligible = 0.1;  // for the results of shrinking
  }
  for (const Edge& each : {edges[0], edges[2], edges[5], edges[7]}) {
    cases.add(each.op, each.function, {rows_of({1, 2, 3, 4, 5, 7, -1})}).options.half = true;
  }
  cases
      .add("lerp", [](const Tensor& x) { return x.lerp(-x, 0.3); },
           {rows_of({6e4, -6e4, 3}, torch::kHalf)})
      .tolerance = 2e-3;
}

void add_pair_edges(CaseList& cases) {
  const std::vector<double> x = {kNan, 1, kInf, -kInf, kInf, -kInf, 0.0, -0.0, 2, -1, kNan};
  const std::vector<double> y = {1, kNan, kInf, kInf, -kInf, -kInf, -0.0, 0.0, -1, 2, kNan};
  const std::vector<MakeInput> both = {rows_of(x), rows_of(y)};
  const auto two = [&](const char* op, Tensor (*function)(const Tensor&, const Tensor&)) {
    cases.add(op, function, both);
  };
  two("maximum", [](const Tensor& a, const Tensor& b) { return at::maximum(a, b); });
  two("minimum", [](const Tensor& a, const Tensor& b) { return at::minimum(a, b); });
  two("fmax", [](const Tensor& a, const Tensor& b) { return at::fmax(a, b); });
  two("fmin", [](const Tensor& a, const Tensor& b) { return at::fmin(a, b); });
  cases
      .add("copysign", [](const Tensor& a, const Tensor& b) { return a.abs().copysign(b); },
           {rows_of({0, -0.0, 1, -2, kInf, 3, kNan}), rows_of({-0.0, 0, -0.0, 0, -kInf, kInf, 1})})
      .signed_zeros = true;
  cases.add("copysign", [](const Tensor& a) { return a.copysign(-1); }, {rows_of({0, 1, -2, kInf})})
      .signed_zeros = true;
  two("max", [](const Tensor& a, const Tensor& b) { return a.max(b); });
  two("min", [](const Tensor& a, const Tensor& b) { return a.min(b); });
  two("clamp", [](const Tensor& a, const Tensor& b) { return a.clamp(b, b + 1); });
  two("clamp_min", [](const Tensor& a, const Tensor& b) { return a.clamp_min(b); });
  two("clamp_max", [](const Tensor& a, const Tensor& b) { return a.clamp_max(b); });
  two("eq", [](const Tensor& a, const Tensor& b) { return a == b; });
  two("ne", [](const Tensor& a, const Tensor& b) { return a != b; });
  two("ge", [](const Tensor& a, const Tensor& b) { return a >= b; });
  two("where", [](const Tensor& a, const Tensor& b) { return at::where(a > b, a, b); });
  two("logical_and", [](const Tensor& a, const Tensor& b) { return a.logical_and(b); });
  two("atan2", [](const Tensor& a, const Tensor& b) { return a.atan2(b); });
  cases.add("clamp", [](const Tensor& a) { return a.clamp(kNan, 0.5); }, {rows_of(x)});
  cases.add("clamp", [](const Tensor& a) { return a.clamp(std::nullopt, kNan); }, {rows_of(x)});
  cases.add("clamp_min", [](const Tensor& a) { return a.clamp_min(kNan); }, {rows_of(x)});
  cases.add("clamp_max", [](const Tensor& a) { return a.clamp_max(kNan); }, {rows_of(x)});
  cases.add("hypot", [](const Tensor& a, const Tensor& b) { return a.hypot(b); },
            {rows_of({1e30, 1e-30, 0, 3, -kInf, 1e20}), rows_of({1e30, -1e-30, 0, -4, 1, 1})});
  cases.add("hypot", [](const Tensor& a, const Tensor& b) { return a.hypot(b); },
            {rows_of({kInf, kNan, -kInf, kNan, 1, 0, kInf}),
             rows_of({kNan, -kInf, kNan, 1, kNan, kNan, -kInf})});
  for (const double weight : {0.0, 0.3, 0.5, 1.0, 2.0, -1.0}) {
    cases.add("lerp", [weight](const Tensor& a, const Tensor& b) { return a.lerp(b, weight); },
              {rows_of({1e8, 1, 2, 3}), rows_of({1, 1e8, -5, 3})});
  }
  cases.add("lerp", [](const Tensor& a, const Tensor& b, const Tensor& w) { return a.lerp(b, w); },
            {rows_of({1e8, 1, 2, 3}), rows_of({1, 1e8, -5, 3}), rows_of({1, 0.5, 0.25, -1})});
}

void add_comparison_edges(CaseList& cases) {
  const std::vector<MakeInput> truth = {truths({8})};
  const std::vector<MakeInput> whole = {integers(-2, 3, {8})};
  struct Edge {
    const char* op;
    Function function;
    const std::vector<MakeInput>* inputs;
  };
  const std::vector<Edge> edges = {
      {"eq", [](const Tensor& x) { return x.eq(2); }, &truth},
      {"eq", [](const Tensor& x) { return x.eq(1); }, &truth},
      {"eq", [](const Tensor& x) { return x.eq(0.5); }, &truth},
      {"eq", [](const Tensor& x) { return x.eq(torch::tensor(2)); }, &truth},
      {"ne", [](const Tensor& x) { return x.ne(2); }, &truth},
      {"lt", [](const Tensor& x) { return x < 2; }, &truth},
      {"ge", [](const Tensor& x) { return x >= -1; }, &truth},
      {"gt", [](const Tensor& x) { return x > 0.5; }, &truth},
      {"eq", [](const Tensor& x) { return x.eq(1.5); }, &whole},
      {"lt", [](const Tensor& x) { return x < -0.5; }, &whole},
      {"ne", [](const Tensor& x) { return x.ne(torch::tensor(1.5)); }, &whole},
      {"where", [](const Tensor& x) { return at::where(x > 0, x, 0.5); }, &whole}};
  for (const Edge& each : edges) cases.add(each.op, each.function, *each.inputs);
}

void add_reduction_edges(CaseList& cases) {
  const MakeInput with_nan = [](std::int64_t batch) {
    Tensor x = torch::randn({batch, 3, 9});
    x.index_put_({0, 1, 4}, kNan);
    x.index_put_({batch - 1, 2, 0}, kNan);
    return x;
  };
  struct Edge {
    const char* op;
    Function function;
  };
  const std::vector<Edge> edges = {
      {"max", [](const Tensor& x) { return x.max(); }},
      {"min", [](const Tensor& x) { return x.min(); }},
      {"amax", [](const Tensor& x) { return x.amax(2); }},
      {"amin", [](const Tensor& x) { return x.amin({1, 2}, true); }},
      {"argmax", [](const Tensor& x) { return x.argmax(2); }},
      {"argmin", [](const Tensor& x) { return x.argmin(1, true); }},
      {"argmax", [](const Tensor& x) { return x.argmax(); }},
      {"linalg_vector_norm", [](const Tensor& x) { return at::linalg_vector_norm(x, kInf, 2); }},
      {"linalg_vector_norm", [](const Tensor& x) { return at::linalg_vector_norm(x, -kInf, 2); }},
      {"all", [](const Tensor& x) { return x.all(2); }},
      {"any", [](const Tensor& x) { return x.any(2); }}};
  for (const Edge& each : edges) cases.add(each.op, each.function, {with_nan});
  cases.add("max", [](const Tensor& x) { return x.max(2); }, {with_nan});
  cases.add("min", [](const Tensor& x) { return x.min(1, true); }, {with_nan});
  const MakeInput infinite = rows_of({-kInf, -kInf, -kInf});
  cases.add("logsumexp", [](const Tensor& x) { return x.logsumexp(1); }, {infinite});
  cases.add("softmax", [](const Tensor& x) { return x.softmax(1); }, {infinite});
  cases.add("log_softmax", [](const Tensor& x) { return x.log_softmax(1); }, {infinite});
  cases.add("softmax", [](const Tensor& x) { return x.softmax(1); }, {rows_of({-80, 0, -kInf, 3})});
  cases.add("log_softmax", [](const Tensor& x) { return x.log_softmax(1); },
            {rows_of({-1e4, 0, 2, 3})});
  cases.add("log_softmax", [](const Tensor& x) { return x.log_softmax(1, torch::kDouble); },
            {rows_of({-1e4, 0, 2, 3})});
  for (const double first : {kInf, kNan}) {
    for (const auto type : {torch::kFloat, torch::kDouble}) {
      cases.add("log_softmax", [](const Tensor& x) { return x.log_softmax(1); },
                {rows_of({first, 1, -kInf}, type)});
      cases.add("softmax", [](const Tensor& x) { return x.softmax(1); },
                {rows_of({first, 1, -kInf}, type)});
    }
  }
  for (const double each : {1.0, kInf, kNan}) {
    for (const auto type : {torch::kFloat, torch::kDouble}) {  // tensors without dimensions
      cases.add("log_softmax", [](const Tensor& x) { return x.max().log_softmax(0); },
                {rows_of({each}, type)});
      cases.add("softmax", [](const Tensor& x) { return x.max().softmax(-1); },
                {rows_of({each}, type)});
    }
  }
  cases.add("masked_fill",
            [](const Tensor& x) { return x.masked_fill(x.amax(1, true) < 0.5, -kInf).softmax(1); },
            {floats({3})});
  cases.add("var", [](const Tensor& x) { return x.var(1); }, {floats({1})});
  // A correction that is larger than the number of elements.
  for (const int correction : {3, 5}) {
    cases.add("var",
              [correction](const Tensor& x) {
                return x.var(torch::IntArrayRef{1}, std::optional<torch::Scalar>(correction));
              },
              {rows_of({1, 2, 4})});
    cases.add("std",
              [correction](const Tensor& x) {
                return x.std(torch::IntArrayRef{1}, std::optional<torch::Scalar>(correction));
              },
              {rows_of({1, 2, 4})});
  }
  cases.add("std", [](const Tensor& x) { return x.std(1, false); }, {floats({1})}).signed_zeros =
      true;
  cases.add("rms_norm", [](const Tensor& x) { return at::rms_norm(x, {2}); },
            {rows_of({1e-4, -2e-4}, torch::kDouble)});
  cases.add("rms_norm", [](const Tensor& x) { return at::rms_norm(x, {2}); },
            {rows_of({1e-4, -2e-4})});
}

// LibTorch sorts NaN behind infinity.
void add_order_edges(CaseList& cases) {
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    const MakeInput all = rows_of({3, kNan, -1, kInf, 2, -kInf, 7}, type);
    const MakeInput with_nan = rows_of({3, kNan, -1, 2, 7}, type);
    for (const bool falling : {false, true}) {
      cases.add("sort", [falling](const Tensor& x) { return x.sort(1, falling); }, {all});
      cases.add("argsort",
                [falling](const Tensor& x) { return x.argsort(std::int64_t{1}, falling); }, {all});
      cases.add("topk", [falling](const Tensor& x) { return x.topk(3, 1, falling); }, {with_nan});
    }
  }
  // Keys of float64 cannot tell infinity from the largest number. In smaller types these are equal,
  // and LibTorch's topk() may give equal elements in any order, so that only its values are right.
  constexpr double kMost = std::numeric_limits<double>::max();
  for (const MakeInput& both : {rows_of({kMost, kNan, 3, kInf, -kMost, -kInf}, torch::kDouble),
                                rows_of({kInf, 3, kMost, -kInf, -kMost}, torch::kDouble)}) {
    for (const bool falling : {false, true}) {
      cases.add("sort", [falling](const Tensor& x) { return x.sort(1, falling); }, {both});
      cases.add("argsort",
                [falling](const Tensor& x) { return x.argsort(std::int64_t{1}, falling); }, {both});
      cases.add("topk", [falling](const Tensor& x) { return std::get<0>(x.topk(4, 1, falling)); },
                {both});
    }
    cases.add("topk", [](const Tensor& x) { return std::get<0>(x.t().topk(1, 0)); }, {both});
  }
  // Equal elements stay in order if that is asked for.
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kLong}) {
    const MakeInput equal = rows_of({2, 1, 2, 3, 1, 2}, type);
    for (const bool falling : {false, true}) {
      cases.add(
          "sort",
          [falling](const Tensor& x) { return x.sort(std::optional<bool>(true), 1, falling); },
          {equal});
      cases.add("argsort",
                [falling](const Tensor& x) { return x.argsort(/*stable=*/true, 1, falling); },
                {equal});
    }
  }
}

// Whole numbers wrap around, and sums of small types are int64.
void add_whole_number_edges(CaseList& cases) {
  const std::vector<MakeInput> bytes = {rows_of({0, 1, 200, 255, 7}, torch::kByte),
                                        rows_of({1, 255, 200, 2, 7}, torch::kByte)};
  const std::vector<MakeInput> chars = {rows_of({-128, 127, -5, 100, 7}, torch::kChar),
                                        rows_of({3, 1, 127, 100, -7}, torch::kChar)};
  const auto two = [&](const char* op, Tensor (*function)(const Tensor&, const Tensor&)) {
    cases.add(op, function, bytes);
    cases.add(op, function, chars);
  };
  two("add", [](const Tensor& x, const Tensor& y) { return x + y; });
  two("sub", [](const Tensor& x, const Tensor& y) { return x - y; });
  two("mul", [](const Tensor& x, const Tensor& y) { return x * y; });
  two("div", [](const Tensor& x, const Tensor& y) { return x / y; });
  two("floor_divide", [](const Tensor& x, const Tensor& y) { return x.floor_divide(y); });
  two("maximum", [](const Tensor& x, const Tensor& y) { return at::maximum(x, y); });
  const MakeInput truth = truths({5});
  const MakeInput small = rows_of({-3, 2, 1, 5, -1}, torch::kInt);
  for (const MakeInput& input : {bytes[0], chars[0], small, truth}) {
    cases.add("sum", [](const Tensor& x) { return x.sum(1); }, {input});
    cases.add("prod", [](const Tensor& x) { return x.prod(1); }, {input});
    cases.add("cumsum", [](const Tensor& x) { return x.cumsum(1); }, {input});
  }
  for (const MakeInput& input : {bytes[0], truth}) {
    cases.add("amax", [](const Tensor& x) { return x.amax(1); }, {input});
    cases.add("mean", [](const Tensor& x) { return x.mean(1, false, torch::kFloat); }, {input});
    cases.add("mul", [](const Tensor& x) { return x * 0.5; }, {input});
  }
  cases.add("add",
            [](const Tensor& x, const Tensor& y) { return x.add(y, (std::int64_t{1} << 60) + 1); },
            {integers(0, 8, {3}), integers(0, 8, {3})});
  cases.add("neg", [](const Tensor& x) { return x.neg(); }, {bytes[0]});
  cases.add("neg", [](const Tensor& x) { return x.neg(); }, {chars[0]});
  cases.add("rsub", [](const Tensor& x) { return at::rsub(x, 3); }, {bytes[0]});
  cases.add("add", [](const Tensor& x, const Tensor& y) { return x + y; }, {truth, truth});
  cases.add("mul", [](const Tensor& x, const Tensor& y) { return x * y; }, {truth, truth});
  cases.add("lt", [](const Tensor& x, const Tensor& y) { return x < y; },
            {small, rows_of({-3.5, 2, 1.5, 4.5, -1})});
  cases.add("eq", [](const Tensor& x, const Tensor& y) { return x == y; }, {chars[0], bytes[0]});
  // onnxruntime lacks these for int16, so that a wider type computes them.
  const MakeInput shorts = rows_of({-3000, 2000, 1, 500, -1}, torch::kShort);
  cases.add("clamp", [](const Tensor& x) { return x.clamp(2, 9); }, {shorts});
  cases.add("clamp", [](const Tensor& x) { return x.clamp(std::nullopt, 9); }, {shorts});
  cases.add("clamp", [](const Tensor& x) { return x.clamp(2, std::nullopt); }, {shorts});
  cases.add("constant_pad_nd", [](const Tensor& x) { return at::constant_pad_nd(x, {1, 2}, 7); },
            {shorts});
  cases.add("amax", [](const Tensor& x) { return x.amax(1); }, {shorts});
}

// Small whole numbers, for which onnxruntime lacks some operators.
void add_small_types(CaseList& cases) {
  for (const auto type : {torch::kShort, torch::kChar}) {
    const std::vector<MakeInput> pair = {rows_of({-7, 3, 5, -2, 100}, type),
                                         rows_of({2, -3, 5, 3, 7}, type)};
    const auto two = [&](const char* op, Tensor (*function)(const Tensor&, const Tensor&)) {
      cases.add(op, function, pair);
    };
    two("where", [](const Tensor& x, const Tensor& y) { return at::where(x > y, x, y); });
    two("masked_fill", [](const Tensor& x, const Tensor& y) { return x.masked_fill(y > 2, 9); });
    two("clamp", [](const Tensor& x, const Tensor&) { return x.clamp(2, 5); });
    two("clamp", [](const Tensor& x, const Tensor& y) { return x.clamp(y - 1, y); });
    two("cat", [](const Tensor& x, const Tensor& y) { return at::cat({x, y}, 1); });
    two("maximum", [](const Tensor& x, const Tensor& y) { return at::maximum(x, y); });
    two("minimum", [](const Tensor& x, const Tensor& y) { return at::minimum(x, y); });
    two("remainder", [](const Tensor& x, const Tensor& y) { return x.remainder(y); });
    two("fmod", [](const Tensor& x, const Tensor& y) { return x.fmod(y); });
    two("eq", [](const Tensor& x, const Tensor& y) { return x == y; });
    two("mm", [](const Tensor& x, const Tensor& y) { return x.mm(y.t()); });
    two("sum", [](const Tensor& x, const Tensor&) {
      return x.slice(0, 1).sum(0, false, x.scalar_type());
    });
    two("scatter", [](const Tensor& x, const Tensor& y) {
      return x.scatter(1, torch::tensor({4, 2, 0, 1, 3}).expand_as(x), y);
    });
  }
}

// onnxruntime adds up and multiplies whole numbers in float64, which holds them up to 2^53.
void add_large_whole_numbers(CaseList& cases) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 60;
  const MakeInput numbers = integers(0, 8, {3, 5});
  const auto sum = [&](std::vector<std::int64_t> dimensions, bool keep) {
    cases.add(
        "sum",
        [=](const Tensor& x) { return (x * kLarge + 1).sum(torch::IntArrayRef(dimensions), keep); },
        {numbers});
  };
  sum({1}, false);
  sum({-1}, true);
  sum({0, 2}, false);
  sum({2, 1}, true);
  cases.add("sum", [](const Tensor& x) { return (x * kLarge + 1).sum(); }, {numbers});
  cases.add("sum", [](const Tensor& x) { return x.sum(1, false, torch::kInt); },
            {rows_of({2147483647, 2147483647, 3}, torch::kInt)});
  cases.add("prod", [](const Tensor& x) { return (x * 3 + 1).prod(1); },
            {integers(-50, 50, {13, 2})});
  cases.add("prod", [](const Tensor& x) { return (x * 3 + 1).prod(2, true); },
            {integers(-50, 50, {2, 16})});
  cases.add("prod", [](const Tensor& x) { return x.prod(1); }, {integers(-50, 50, {1})});
  cases.add("dot",
            [](const Tensor& x) {
              const Tensor y = x * (kLarge >> 29) + 1;
              return y[0].dot(y[0]);
            },
            {integers(0, 8, {5})});
  cases.add("cumsum", [](const Tensor& x) { return (x * kLarge + 1).cumsum(2); }, {numbers});
  cases.add("amax", [](const Tensor& x) { return (x * (kLarge >> 4) + x).amax(2); }, {numbers});
  // Without zeros, by which infinity would be multiplied where float16 overflows.
  cases.add("matmul", [](const Tensor& x) { return (x * kLarge + 1).matmul(x.transpose(1, 2)); },
            {integers(1, 8, {3, 5})});
  cases.add("einsum",
            [](const Tensor& x) { return at::einsum("bij,bij->bi", {x * kLarge + 1, x}); },
            {numbers});
}

void add_whole_powers(CaseList& cases) {
  for (const std::int64_t exponent : {1, 2, 3, 13, 39, 40}) {
    cases.add("pow", [exponent](const Tensor& x) { return x.pow(exponent); },
              {rows_of({-3, -1, 0, 1, 2, 3}, torch::kLong)});
  }
  for (const Tensor& exponent : {torch::tensor(3), torch::full({1, 1, 1}, 3, torch::kLong)}) {
    cases.add("pow", [exponent](const Tensor& x) { return x.pow(exponent); },
              {rows_of({-3, -1, 0, 1, 2, 3}, torch::kLong)});
  }
  cases.add("pow", [](const Tensor& x) { return x.pow(2.5); },
            {rows_of({0, 1, 2, 3}, torch::kLong)});
  cases.add("square", [](const Tensor& x) { return x.square(); },
            {rows_of({-3, 4, 3037000500}, torch::kLong)});
}

}  // namespace

void add_edge_cases(CaseList& cases) {
  add_activation_edges(cases);
  add_large_arguments(cases);
  add_function_edges(cases);
  add_division_edges(cases);
  add_numbers_beside_float16(cases);
  add_pair_edges(cases);
  add_comparison_edges(cases);
  add_reduction_edges(cases);
  add_order_edges(cases);
  add_whole_number_edges(cases);
  add_small_types(cases);
  add_large_whole_numbers(cases);
  add_whole_powers(cases);
}

}  // namespace lockstep::testing_support
