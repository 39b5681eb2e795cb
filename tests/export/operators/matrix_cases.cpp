// Matrix products and distances.
#include <limits>

#include <torch/nn/modules/linear.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

}  // namespace

void add_matrix_cases(CaseList& cases) {
  cases.add_net("addmm", nn::Linear(4, 5), floats({4}));
  cases.add("addmm",
            [](const Tensor& x, const Tensor& y) {
              return x.addmm(y, torch::arange(20, torch::kFloat).view({4, 5}) / 10, 0.5, 2);
            },
            {floats({5}), floats({4})});
  cases.add_net("matmul", nn::Linear(4, 5), floats({3, 4}));
  cases.add_net("matmul", nn::Linear(nn::LinearOptions(4, 5).bias(false)), floats({4}));
  cases.add("matmul", [](const Tensor& x, const Tensor& y) { return x.matmul(y); },
            {floats({3, 4}), floats({4, 5})});
  // A vector on either side, whose dimension is not in the result.
  cases.add("matmul", [](const Tensor& x) { return x.matmul(torch::arange(4, torch::kFloat)); });
  cases.add("matmul", [](const Tensor& x) { return torch::arange(3, torch::kFloat).matmul(x); });
  cases.add("linear", [](const Tensor& x) {
    return at::linear(x, torch::arange(20, torch::kFloat).view({5, 4}) / 10);
  });
  cases.add("mm", [](const Tensor& x, const Tensor& y) { return x.mm(y.t()); },
            {floats({4}), floats({4})});
  cases.add("bmm", [](const Tensor& x, const Tensor& y) { return x.bmm(y); },
            {floats({3, 4}), floats({4, 5})});
  cases.add(
      "baddbmm",
      [](const Tensor& x, const Tensor& y, const Tensor& z) { return x.baddbmm(y, z, 0.5, 2); },
      {floats({3, 5}), floats({3, 4}), floats({4, 5})});
  cases.add("baddbmm",
            [](const Tensor& x, const Tensor& y, const Tensor& z) { return x.baddbmm(y, z, 0, 2); },
            {floats({3, 5}), floats({3, 4}), floats({4, 5})});
  cases.add("mv", [](const Tensor& x) { return x.mv(torch::arange(4, torch::kFloat)); },
            {floats({4})});
  cases.add("addmv",
            [](const Tensor& x, const Tensor& y) {
              return x.addmv(y, torch::arange(4, torch::kFloat), 0.5, 2);
            },
            {floats({}), floats({4})});
  cases.add("dot", [](const Tensor& x) { return x[0].dot(x[0]); }, {floats({4})});
  cases.add("outer", [](const Tensor& x) { return x.outer(torch::arange(4, torch::kFloat)); },
            {floats({})});
  cases.add("einsum",
            [](const Tensor& x, const Tensor& y) { return at::einsum("bij, bjk -> bik", {x, y}); },
            {floats({3, 4}), floats({4, 5})});
  // A size of 1 is broadcast, and ellipses of fewer dimensions are.
  const auto product = [&cases](const char* equation, MakeInput x, MakeInput y) {
    cases.add("einsum",
              [equation](const Tensor& a, const Tensor& b) { return at::einsum(equation, {a, b}); },
              {std::move(x), std::move(y)});
  };
  product("bij,bij->bij", floats({1, 4}), floats({3, 4}));
  product("bij, bij -> bji", floats({3, 4}), floats({3, 1}));
  product("bij,bjk->bik", floats({3, 1}), floats({4, 5}));
  product("...ij,...jk->...ik", floats({1, 3, 4}), floats({2, 4, 5}));
  product("b...i,b...i->b...", floats({4}), floats({3, 4}));
  product("bii,bi->bi", floats({1, 1}), floats({4}));
  cases.add("einsum", [](const Tensor& x) {
    return at::einsum("...ij,...jk->...ik",
                      {x, torch::arange(20, torch::kFloat).view({4, 5}) / 10});
  });
  cases.add("einsum", [](const Tensor& x) {
    return at::einsum("bij,bj->bi", {x, torch::arange(4, torch::kFloat).view({1, 4})});
  });
  cases.add("bilinear",
            [](const Tensor& x, const Tensor& y) {
              return at::bilinear(x, y, torch::arange(60, torch::kFloat).view({3, 4, 5}) / 60,
                                  torch::ones({3}));
            },
            {floats({4}), floats({5})});
  cases.add("bilinear",
            [](const Tensor& x, const Tensor& y) {
              return at::bilinear(x, y, torch::arange(60, torch::kFloat).view({3, 4, 5}) / 60, {});
            },
            {floats({4}), floats({5})});
  const std::vector<MakeInput> pair = {floats({5}), floats({5})};
  cases.add(
      "cosine_similarity",
      [](const Tensor& x, const Tensor& y) { return at::cosine_similarity(x, y); }, pair);
  cases.add(
      "pairwise_distance",
      [](const Tensor& x, const Tensor& y) { return at::pairwise_distance(x, y); }, pair);
  // The dimension is one of the broadcast arguments.
  const auto similarity = [&cases](MakeInput x, MakeInput y, std::int64_t dim) {
    cases.add("cosine_similarity",
              [dim](const Tensor& a, const Tensor& b) { return at::cosine_similarity(a, b, dim); },
              {std::move(x), std::move(y)});
  };
  similarity(floats({2, 3}), floats({1, 3}), 1);
  similarity(floats({1, 3}), floats({2, 1}), 2);
  similarity(floats({2, 3}), floats({2, 1}), 2);
  similarity(floats({2, 3}), floats({2, 3}), -2);
  similarity(between(1e19, 2e19, {3}), between(1e19, 2e19, {3}), 1);
  similarity(rows_of({0, 0, 0}), floats({3}), 1);
  for (const std::int64_t dim : {0, 1, 2, -1}) {
    // [2, 3, 4] and [3, 4]; [2, 1] and [batch, 2, 3]
    cases.add("cosine_similarity", [dim](const Tensor& x) {
      const Tensor fewer = torch::arange(12, torch::kFloat).view({3, 4}) - 4;
      return at::cosine_similarity(fewer, x, dim == 0 ? -2 : dim);
    });
    cases.add("cosine_similarity",
              [dim](const Tensor& x) {
                const Tensor fewer = torch::arange(2, torch::kFloat).view({2, 1}) - 0.3;
                return at::cosine_similarity(fewer, x, dim == 0 ? 1 : dim);
              },
              {floats({2, 3})});
  }
  const auto distance = [&cases](double p, bool keep) {
    cases.add("pairwise_distance", [=](const Tensor& x) {
      const Tensor fewer = torch::arange(4, torch::kFloat) - 1.3;
      return at::pairwise_distance(fewer, x, p, 1e-6, keep);
    });
    cases.add("pairwise_distance", [=](const Tensor& x) {
      return at::pairwise_distance(x, torch::ones({1, 1, 1, 4}), p, 1e-6, keep);
    });
  };
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double p : {0.0, 1.0, 2.0, 3.0, 0.5, infinity, -infinity}) distance(p, p < 2);
  // The added tensor is broadcast, and ignored if its factor is 0.
  const Tensor weight = torch::arange(20, torch::kFloat).view({4, 5}) / 10;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Tensor& added : {torch::full({}, 0.7), torch::arange(5, torch::kFloat),
                              torch::ones({1, 5}), torch::full({5}, nan)}) {
    const double beta = added.isnan().any().item<bool>() ? 0 : 0.5;
    cases.add("addmm", [=](const Tensor& x) { return at::addmm(added, x, weight, beta, 2); },
              {floats({4})});
    cases.add("baddbmm",
              [=](const Tensor& x, const Tensor& y) { return at::baddbmm(added, x, y, beta, 2); },
              {floats({3, 4}), floats({4, 5})});
  }
  // If alpha is 0, LibTorch leaves the product out, except that of float16 and of small batched
  // matrices.
  const MakeInput not_finite = rows_of({nan, 1, std::numeric_limits<double>::infinity(), 2});
  for (const double beta : {1.0, 0.5, 0.0}) {
    cases.add("addmm", [=](const Tensor& x) { return at::addmm(weight[0], x, weight, beta, 0); },
              {not_finite});
    cases.add(
        "addmv",
        [=](const Tensor& x) { return at::addmv(torch::ones({}), x, weight.t()[0], beta, 0); },
        {not_finite});
    for (const std::int64_t rows : {19, 20}) {  // 380 and 400 products
      cases.add("baddbmm",
                [=](const Tensor& x, const Tensor& y) {
                  return at::baddbmm(weight[0], x.log(), y, beta, 0);
                },
                {between(-2, -1, {rows, 4}), floats({4, 5})});
    }
  }
  // Attributes of ONNX have the precision of float32.
  cases
      .add("addmm",
           [=](const Tensor& x) {
             const Tensor factor = weight.to(torch::kDouble);
             return at::addmm(factor[0], x.to(torch::kDouble), factor, 0.1, 1.0 / 3);
           },
           {between(0.5, 2, {4})})
      .tolerance = 1e-13;
  // One row of weights, without a dimension of its own.
  cases.add("linear",
            [](const Tensor& x) { return at::linear(x, torch::arange(4, torch::kFloat) - 1.5); });
  cases.add("linear",
            [](const Tensor& x) { return at::linear(torch::ones({2, 4}), x.flatten(1)[0]); },
            {floats({4})});
  // With a bias, and with weights that are computed.
  for (const auto& sizes : {std::vector<std::int64_t>{4}, std::vector<std::int64_t>{3, 4}}) {
    cases.add("linear", [weight](const Tensor& x) { return at::linear(x, weight.t(), weight[3]); },
              {floats(sizes)});
  }
  cases.add("linear", [](const Tensor& x) {
    return at::linear(x, x.mean(torch::IntArrayRef{0}), x.mean(torch::IntArrayRef{0, 2}));
  });
  // Gemm takes no whole numbers.
  cases.add("addmm",
            [](const Tensor& x) {
              const Tensor factor = torch::arange(20, torch::kLong).view({4, 5});
              return at::addmm(torch::ones({5}, torch::kLong), x, factor, 3, 2);
            },
            {integers(-9, 9, {4})});
}

}  // namespace lockstep::testing_support
