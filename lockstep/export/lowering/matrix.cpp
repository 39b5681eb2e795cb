// Products of matrices and vectors.
#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include <lockstep/export/lowering/functions.h>
#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

// A factor of Gemm, which can transpose it: weight.t() uses the original parameter.
struct GemmFactor {
  std::string name;
  bool transposed = false;
};

GemmFactor gemm_factor(RecordedOperation& op, std::size_t i) {
  const torch::jit::Node& source = *op.node().input(i)->node();
  if (std::string_view(source.kind().toQualString()) == "aten::t" && op.sizes(i).size() == 2) {
    return {op.at(source).tensor(0), true};
  }
  return {op.tensor(i), false};
}

// alpha * a * b + beta * c without Gemm.
void emit_matrix_product(RecordedOperation& op, const GemmFactor& a, const GemmFactor& b,
                         const std::string& c, double alpha, double beta) {
  const at::ScalarType type = op.result_type();
  const auto matrix = [&](const GemmFactor& factor) {
    return factor.transposed ? op.transpose(factor.name, {1, 0}) : factor.name;
  };
  const auto scaled = [&](const std::string& name, double factor) {
    return factor == 1 ? name : op.add("Mul", {name, op.graph().scalar(factor, type)});
  };
  const std::string product = scaled(op.add("MatMul", {matrix(a), matrix(b)}), alpha);
  op.bind(c.empty() || beta == 0 ? product : op.add("Add", {product, scaled(c, beta)}));
}

void emit_gemm(RecordedOperation& op, const GemmFactor& a, const GemmFactor& b,
               const std::string& c, double alpha, double beta) {
  // onnxruntime's Gemm does not take whole numbers, and its attributes are float32.
  const bool has_precise_factors = op.result_type() == at::kDouble && (alpha != 1 || beta != 1);
  if (!at::isFloatingType(op.result_type()) || has_precise_factors) {
    return emit_matrix_product(op, a, b, c, alpha, beta);
  }
  op.result("Gemm", {a.name, b.name, c},
            {{"alpha", alpha},
             {"beta", beta},
             {"transA", a.transposed ? 1 : 0},
             {"transB", b.transposed ? 1 : 0}});
}

// beta * input alone, for a sum whose product LibTorch leaves out because alpha is 0.
void emit_without_product(RecordedOperation& op, double beta) {
  const at::ScalarType type = op.result_type();
  const std::string factor = op.graph().scalar(beta, type);
  if (beta == 0) return op.bind(op.expanded(factor, {}, op.result_sizes()));
  const std::string scaled = beta == 1 ? op.tensor(0) : op.add("Mul", {op.tensor(0), factor});
  op.bind(op.expanded(scaled, op.sizes(0), op.result_sizes()));
}

// Whether NaN and infinity times an alpha of 0 leave no trace. LibTorch multiplies float16 all the
// same.
bool skips_product(RecordedOperation& op) {
  return op.number_or(4, 1) == 0 && op.result_type() != at::kHalf;
}

// addmm(input, mat1, mat2, beta, alpha)
void lower_addmm(RecordedOperation& op, const Operator&) {
  const double alpha = op.number_or(4, 1);
  const double beta = op.number_or(3, 1);
  if (skips_product(op)) return emit_without_product(op, beta);
  if (alpha == 0) {  // Gemm would leave the product out
    return emit_matrix_product(op, gemm_factor(op, 1), gemm_factor(op, 2), op.tensor(0), 0, beta);
  }
  emit_gemm(op, gemm_factor(op, 1), gemm_factor(op, 2), op.tensor(0), alpha, beta);
}

void lower_mm(RecordedOperation& op, const Operator&) {
  emit_gemm(op, gemm_factor(op, 0), gemm_factor(op, 1), "", 1, 1);
}

void lower_matmul(RecordedOperation& op, const Operator&) {
  if (op.rank(0) == 2 && op.rank(1) == 2 && op.known(1)) return lower_mm(op, {});
  op.result("MatMul", {op.tensor(0), op.tensor(1)});
}

// linear(input, weight, bias)
void lower_linear(RecordedOperation& op, const Operator&) {
  if (op.rank(0) == 2 && op.rank(1) == 2) {
    return emit_gemm(op, {op.tensor(0), false}, {op.tensor(1), true}, op.tensor(2), 1, 1);
  }
  const auto weight = op.known(1);
  if (op.rank(1) == 1) {  // one row of weights, which gives no dimension of its own
    const std::string product = op.add("MatMul", {op.tensor(0), op.tensor(1)});
    return op.bind(op.has(2) ? op.add("Add", {product, op.tensor(2)}) : product);
  }
  const std::string turned = weight ? op.graph().constant(weight->t(), op.wish(1) + ".t")
                                    : op.transpose(op.tensor(1), {1, 0});
  const std::string product = op.add("MatMul", {op.tensor(0), turned});
  op.bind(op.has(2) ? op.add("Add", {product, op.tensor(2)}) : product);
}

// beta * input + alpha * product.
void lower_add_product(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const auto scaled = [&](const std::string& name, std::size_t i) {
    const double factor = op.number_or(i, 1);
    return factor == 1 ? name : op.add("Mul", {name, op.graph().scalar(factor, type)});
  };
  const std::string product = op.add("MatMul", {op.tensor(1), op.tensor(2)});
  if (op.number_or(3, 1) == 0) return op.bind(scaled(product, 4));
  op.result("Add", {scaled(op.tensor(0), 3), scaled(product, 4)});
}

// addmv(input, mat, vec, beta, alpha)
void lower_addmv(RecordedOperation& op, const Operator& entry) {
  if (skips_product(op)) return emit_without_product(op, op.number_or(3, 1));
  lower_add_product(op, entry);
}

// The number of products in a matrix of the result; 0 if it follows the batch.
std::int64_t products_in_matrix(RecordedOperation& op) {
  const Extent factors[] = {op.sizes(1).at(1), op.sizes(1).at(2), op.sizes(2).at(2)};
  std::int64_t count = 1;
  for (const Extent& factor : factors) count *= factor.is_static() ? factor.size : 0;
  return count;
}

// baddbmm(input, a, b, beta, alpha). LibTorch's own loop for small matrices multiplies them by any
// alpha, and its library for larger ones does not if alpha is 0.
void lower_baddbmm(RecordedOperation& op, const Operator& entry) {
  constexpr std::int64_t kFewestOfLibrary = 400;
  if (skips_product(op) && products_in_matrix(op) >= kFewestOfLibrary) {
    return emit_without_product(op, op.number_or(3, 1));
  }
  lower_add_product(op, entry);
}

void lower_dot(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string products =
      op.add("Mul", {op.widened(op.tensor(0), type), op.widened(op.tensor(1), type)});
  if (!at::isFloatingType(type)) return op.bind(whole_sum(op, products, {0}, /*keep=*/false));
  op.bind(op.narrowed(op.reduce("ReduceSum", products, {0}, /*keep=*/false), type));
}

void lower_outer(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string column = op.unsqueeze(op.tensor_as(0, type), {1});
  op.result("Mul", {column, op.unsqueeze(op.tensor_as(1, type), {0})});
}

// How many of the comma-separated arguments of einsum() have a dimension.
std::int64_t arguments_with(char letter, std::string_view arguments) {
  std::int64_t count = 0;
  bool has_it = false;
  for (const char each : arguments) {
    if (each == ',') {
      has_it = false;
    } else if (each == letter && !has_it) {
      has_it = true;
      ++count;
    }
  }
  return count;
}

// Whether an equation of einsum() without spaces adds up a dimension that only one argument has.
bool sums_one_argument(std::string_view equation) {
  const auto arrow = equation.find("->");
  const bool names_result = arrow != std::string_view::npos;
  const std::string_view arguments = equation.substr(0, arrow);
  const std::string_view result = names_result ? equation.substr(arrow + 2) : "";
  return std::any_of(arguments.begin(), arguments.end(), [&](char letter) {
    if (letter == ',' || letter == '.') return false;
    const bool is_kept = names_result ? result.find(letter) != std::string_view::npos
                                      : std::count(arguments.begin(), arguments.end(), letter) == 1;
    return !is_kept && arguments_with(letter, arguments) == 1;
  });
}

// The comma-separated terms of an equation of einsum(), one for each argument.
std::vector<std::string> terms_of(std::string_view equation) {
  std::string_view rest = equation.substr(0, equation.find("->"));
  std::vector<std::string> terms;
  for (auto comma = rest.find(','); comma != std::string_view::npos; comma = rest.find(',')) {
    terms.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(comma + 1);
  }
  terms.emplace_back(rest);
  return terms;
}

// The label of each dimension of an argument: "i...j" of four dimensions is "i..j".
std::string labels_of(const std::string& term, std::size_t rank) {
  constexpr std::string_view kEllipsis = "...";
  const auto begin = term.find(kEllipsis);
  if (begin == std::string::npos) return term;
  const std::size_t named = term.size() - kEllipsis.size();
  std::string labels = term;
  return labels.replace(begin, kEllipsis.size(), std::string(rank - std::min(rank, named), '.'));
}

// ONNX broadcasts sizes of 1 in an ellipsis only, and its ellipses must have as many dimensions.
Names einsum_arguments(RecordedOperation& op, std::string_view equation) {
  Names names = op.tensors(1);
  std::vector<Extents> sizes = op.sizes_of_members(1);
  const auto terms = terms_of(equation);
  if (sizes.size() != names.size() || terms.size() != names.size()) return names;
  std::vector<std::string> labels;
  std::map<char, Extent> full;
  std::int64_t most_dots = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    labels.push_back(labels_of(terms[i], sizes[i].size()));
    const auto dots = std::count(labels[i].begin(), labels[i].end(), '.');
    most_dots = std::max<std::int64_t>(most_dots, dots);
    for (std::size_t d = 0; d < sizes[i].size(); ++d) {
      Extent& size = full.try_emplace(labels[i].at(d), sizes[i][d]).first->second;
      if (size == static_extent(1)) size = sizes[i][d];
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    Extents wanted = sizes[i];
    for (std::size_t d = 0; d < wanted.size(); ++d) {
      if (labels[i][d] != '.') wanted[d] = full.at(labels[i][d]);
    }
    names[i] = op.expanded(names[i], sizes[i], wanted);
    const auto begin = terms[i].find('.');
    if (begin == std::string::npos) continue;
    std::vector<std::int64_t> added;
    const auto dots = std::count(labels[i].begin(), labels[i].end(), '.');
    for (std::int64_t d = dots; d < most_dots; ++d) {
      added.push_back(static_cast<std::int64_t>(begin) + d - dots);
    }
    if (!added.empty()) names[i] = op.unsqueeze(names[i], added);
  }
  return names;
}

// ONNX takes the same equation, without spaces.
void lower_einsum(RecordedOperation& op, const Operator&) {
  std::string equation = op.text(0);
  std::erase(equation, ' ');
  // onnxruntime adds them up in float64.
  if (!at::isFloatingType(op.result_type()) && sums_one_argument(equation)) {
    op.reject("a sum of whole numbers over a dimension of one argument; use sum()");
  }
  op.result("Einsum", einsum_arguments(op, equation), {{"equation", equation}});
}

// bilinear(x1, x2, weight, bias)
void lower_bilinear(RecordedOperation& op, const Operator&) {
  const std::string product = op.add("Einsum", {op.tensor(0), op.tensor(2), op.tensor(1)},
                                     {{"equation", "...i,oij,...j->...o"}});
  op.bind(op.has(3) ? op.add("Add", {product, op.tensor(3)}) : product);
}

// cosine_similarity(x1, x2, dim, eps): each norm is at least eps. The dimension is one of the
// broadcast arguments. As in LibTorch, each is divided by its norm first, which keeps the product
// in range.
void lower_cosine_similarity(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const Extents sizes = op.broadcast_sizes(0, 1);
  const std::int64_t axis = op.axis(op.integer_or(2, 1), static_cast<std::int64_t>(sizes.size()));
  const double least = op.number_or(3, 1e-8);
  const std::string eps = type == at::kHalf  // LibTorch rounds it to float16
                              ? op.widened(op.graph().scalar(least, type), type)
                              : op.wide_scalar(least, type);
  const auto unit = [&](std::size_t i) {
    const std::string whole = op.expanded(op.tensor_as(i, type), op.sizes(i), sizes);
    const std::string x = op.widened(whole, type);
    const std::string norm = op.reduce("ReduceL2", x, {axis}, /*keep=*/true);
    return op.add("Div", {x, op.add("Max", {norm, eps})});
  };
  const std::string product = op.add("Mul", {unit(0), unit(1)});
  op.bind(op.narrowed(op.reduce("ReduceSum", product, {axis}, /*keep=*/false), type));
}

// pairwise_distance(x1, x2, p, eps, keepdim), along the last dimension of the broadcast arguments.
void lower_pairwise_distance(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const auto rank = static_cast<std::int64_t>(op.broadcast_sizes(0, 1).size());
  const std::int64_t axis = op.axis(-1, rank);
  // Differences of whole numbers wrap around before they become floats.
  const at::ScalarType given = at::promote_types(op.type(0), op.type(1));
  const std::string difference = op.add("Sub", {op.tensor_as(0, given), op.tensor_as(1, given)});
  const std::string distance = op.cast(difference, given, type);
  const std::string eps = op.graph().scalar(op.number_or(3, 1e-6), type);
  const bool keep = op.arguments() > 4 && op.flag(4);
  op.bind(vector_norm(op, op.add("Add", {distance, eps}), type, op.number_or(2, 2), {axis}, keep));
}

constexpr Operator kMatrix[] = {
    {"addmm", lower_addmm},     {"addmv", lower_addmv},
    {"baddbmm", lower_baddbmm}, {"bilinear", lower_bilinear},
    {"bmm", lower_matmul},      {"cosine_similarity", lower_cosine_similarity},
    {"dot", lower_dot},         {"einsum", lower_einsum},
    {"linear", lower_linear},   {"matmul", lower_matmul},
    {"mm", lower_mm},           {"mv", lower_matmul},
    {"outer", lower_outer},     {"pairwise_distance", lower_pairwise_distance},
};

}  // namespace

Family matrix_operators() { return kMatrix; }

}  // namespace lockstep::onnx
