// Attention by scaled dot products.
#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

}  // namespace

void add_attention_cases(CaseList& cases) {
  const std::vector<MakeInput> heads = {floats({2, 5, 8}), floats({2, 6, 8}), floats({2, 6, 8})};
  cases.add(
      "scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v) {
        return at::scaled_dot_product_attention(q, k, v);
      },
      heads);
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
}

}  // namespace lockstep::testing_support
