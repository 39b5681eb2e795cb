// Matrix products and distances.
#include <torch/nn/modules/linear.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

}  // namespace

void add_matrix_cases(CaseList& cases) {
  cases.add_net("addmm", nn::Linear(4, 5), floats({4}));
  cases.add_net("matmul", nn::Linear(4, 5), floats({3, 4}));
  cases.add_net("matmul", nn::Linear(nn::LinearOptions(4, 5).bias(false)), floats({4}));
  cases.add("matmul", [](const Tensor& x, const Tensor& y) { return x.matmul(y); },
            {floats({3, 4}), floats({4, 5})});
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
  cases.add("bilinear",
            [](const Tensor& x, const Tensor& y) {
              return at::bilinear(x, y, torch::arange(60, torch::kFloat).view({3, 4, 5}) / 60,
                                  torch::ones({3}));
            },
            {floats({4}), floats({5})});
  const std::vector<MakeInput> pair = {floats({5}), floats({5})};
  cases.add(
      "cosine_similarity",
      [](const Tensor& x, const Tensor& y) { return at::cosine_similarity(x, y); }, pair);
  cases.add(
      "pairwise_distance",
      [](const Tensor& x, const Tensor& y) { return at::pairwise_distance(x, y); }, pair);
}

}  // namespace lockstep::testing_support
