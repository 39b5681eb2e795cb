// Attention by scaled dot products.
#include <limits>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

}  // namespace

void add_attention_cases(CaseList& cases) {
  const std::vector<MakeInput> heads = {floats({2, 5, 8}), floats({2, 6, 8}), floats({2, 6, 8})};
  cases
      .add(
          "scaled_dot_product_attention",
          [](const Tensor& q, const Tensor& k, const Tensor& v) {
            return at::scaled_dot_product_attention(q, k, v);
          },
          heads)
      .negligible = 0.1;
  cases.add(
      "scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v) {
        const auto mask = torch::ones({5, 6}, torch::kBool).tril();
        return at::scaled_dot_product_attention(q, k, v, mask);
      },
      heads);
  cases.add(
      "scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v) {
        return at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true);
      },
      heads);
  const auto attention = [&cases, &heads](auto mask, std::optional<double> scale) {
    cases.add(
        "scaled_dot_product_attention",
        [=](const Tensor& q, const Tensor& k, const Tensor& v) {
          return at::scaled_dot_product_attention(q, k, v, mask(q), 0, false, scale);
        },
        heads);
  };
  // The second row of scores is hidden as a whole.
  Tensor visible = torch::ones({5, 6}, torch::kBool).tril();
  visible[1].fill_(false);
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor additive = torch::zeros({5, 6}).masked_fill(visible.logical_not(), -infinity);
  attention([=](const Tensor&) { return visible; }, std::nullopt);
  attention([=](const Tensor&) { return additive; }, std::nullopt);
  attention([=](const Tensor&) { return visible.unsqueeze(0); }, 0.3);
  attention([=](const Tensor&) { return additive + 0.5; }, -0.3);
  attention([](const Tensor&) { return std::optional<Tensor>(); }, -0.3);
  // A mask from the inputs, which hides all rows of some samples.
  attention([](const Tensor& q) { return q.slice(3, 0, 6).sum(1, true).sum({2, 3}, true) > 0; },
            std::nullopt);
  attention([](const Tensor& q) { return q.slice(3, 0, 6).expand({-1, 2, 5, 6}) > 0.75; },
            std::nullopt);
  // Queries without heads, and fewer keys than queries.
  cases.add("scaled_dot_product_attention",
            [=](const Tensor& q, const Tensor& k, const Tensor& v) {
              return at::scaled_dot_product_attention(q, k, v, visible);
            },
            {floats({5, 8}), floats({6, 8}), floats({6, 3})});
  cases.add("scaled_dot_product_attention",
            [](const Tensor& q, const Tensor& k, const Tensor& v) {
              return at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true);
            },
            {floats({5, 8}), floats({3, 8}), floats({3, 8})});
  // In double.
  cases
      .add("scaled_dot_product_attention",
           [=](const Tensor& x) {
             const Tensor q = x.to(torch::kDouble);
             const Tensor k = at::cat({q, q.slice(2, 0, 1)}, 2);
             return at::scaled_dot_product_attention(q, k, k, additive.to(torch::kDouble));
           },
           {floats({2, 5, 8})})
      .tolerance = 1e-12;
}

}  // namespace lockstep::testing_support
