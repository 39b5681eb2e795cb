// Tensors created in forward(), some of which depend on the batch size.
#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

}  // namespace

void add_creation_cases(CaseList& cases) {
  cases.add("zeros", [](const Tensor& x) { return at::cat({x, at::zeros({x.size(0), 2, 4})}, 1); })
      .options.follow_batch = true;
  cases.add("ones", [](const Tensor& x) { return at::cat({x, at::ones({x.size(0), 2, 4})}, 1); })
      .options.follow_batch = true;
  cases.add("full", [](const Tensor& x) { return x * at::full({x.size(0), 1, 4}, 2.5); })
      .options.follow_batch = true;
  cases.add("arange", [](const Tensor& x) { return x + at::arange(x.size(0)).view({-1, 1, 1}); })
      .options.follow_batch = true;
  cases.add("zeros_like", [](const Tensor& x) { return at::zeros_like(x) + x; });
  cases.add("ones_like", [](const Tensor& x) { return at::ones_like(x) + x; });
  cases.add("full_like", [](const Tensor& x) { return at::full_like(x, 1.5) + x; });
  cases.add("empty_like", [](const Tensor& x) { return at::empty_like(x).fill_(2) + x; });
  cases.add("fill", [](const Tensor& x) { return x.clone().fill_(2) + x; });
  cases.add("zero", [](const Tensor& x) { return x.clone().zero_() + x; });
  cases.add("copy", [](const Tensor& x) { return at::zeros_like(x).copy_(x * 2); });
  const auto follow = [&cases](const char* op, Tensor (*make)(const Tensor&, std::int64_t)) {
    cases.add(op, [make](const Tensor& x) { return at::cat({x, make(x, x.size(0))}, 1); })
        .options.follow_batch = true;
  };
  follow("new_zeros", [](const Tensor& x, std::int64_t n) { return x.new_zeros({n, 1, 4}); });
  follow("new_ones", [](const Tensor& x, std::int64_t n) { return x.new_ones({n, 1, 4}); });
  follow("new_full", [](const Tensor& x, std::int64_t n) { return x.new_full({n, 1, 4}, 3.5); });
  follow("new_empty",
         [](const Tensor& x, std::int64_t n) { return x.new_empty({n, 1, 4}).fill_(1); });
  follow("empty", [](const Tensor&, std::int64_t n) { return at::empty({n, 1, 4}).fill_(1); });
  cases.add("copy", [](const Tensor& x) {
    return at::zeros_like(x).copy_(torch::arange(4, torch::kFloat)) + x;
  });
  // A start and a step beside the end that follows the batch.
  cases
      .add("arange",
           [](const Tensor& x) { return x + at::arange(3, 3 + 2 * x.size(0), 2).view({-1, 1, 1}); })
      .options.follow_batch = true;
  cases
      .add("arange",
           [](const Tensor& x) { return x + at::arange(1, x.size(0) + 1).view({-1, 1, 1}); })
      .options.follow_batch = true;
}

}  // namespace lockstep::testing_support
