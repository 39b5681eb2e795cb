// Sums, means, extrema, statistics and sorting along dimensions.
#include <limits>
#include <vector>

#include <ATen/core/Reduction.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

void add_reduction_cases(CaseList& cases) {
  const auto first = [](const std::tuple<Tensor, Tensor>& both) { return std::get<0>(both); };
  cases.add("sum", [](const Tensor& x) { return x.sum(); });
  cases.add("sum", [](const Tensor& x) { return x.sum({1, 2}, true); });
  cases.add("sum", [](const Tensor& x) { return x.sum(1); }, {integers(0, 9, {3, 4})});
  cases.add("mean", [](const Tensor& x) { return x.mean(-1); });
  cases.add("mean", [](const Tensor& x) { return x.mean(); });
  cases.add("prod", [](const Tensor& x) { return x.prod(1); });
  cases.add("amax", [](const Tensor& x) { return x.amax({1, 2}); });
  cases.add("amin", [](const Tensor& x) { return x.amin(1, true); });
  cases.add("max", [](const Tensor& x) { return x.max(); });
  cases.add("max", [](const Tensor& x) { return x.max(1); });
  cases.add("max", [](const Tensor& x, const Tensor& y) { return x.max(y); },
            {floats({3}), floats({3})});
  cases.add("min", [](const Tensor& x) { return x.min(2, true); });
  cases.add("min", [](const Tensor& x) { return x.min(); });
  cases.add("argmax", [](const Tensor& x) { return x.argmax(1); });
  cases.add("argmin", [](const Tensor& x) { return x.argmin(-1, true); });
  cases.add("all", [](const Tensor& x) { return x.all(1); }, {truths({2, 4})});
  cases.add("any", [](const Tensor& x) { return x.any(1); }, {truths({2, 4})});
  cases.add("any", [](const Tensor& x) { return x.any(); }, {truths({2, 4})});
  cases.add("var", [](const Tensor& x) { return x.var(1); });
  cases.add("var", [](const Tensor& x) { return x.var(torch::IntArrayRef{1, 2}, false, true); });
  cases.add("std", [](const Tensor& x) { return x.std(2); });
  cases.add("var_mean", [](const Tensor& x) { return at::var_mean(x, 1); });
  cases.add("std_mean", [](const Tensor& x) { return at::std_mean(x, 2); });
  cases.add("logsumexp", [](const Tensor& x) { return x.logsumexp(1); });
  cases.add("norm", [](const Tensor& x) { return x.norm(2, 1); });
  cases.add("norm", [](const Tensor& x) { return x.norm(3, {1, 2}, true); });
  cases.add("linalg_vector_norm",
            [](const Tensor& x) { return at::linalg_vector_norm(x, kInfinity, 1); });
  cases.add("linalg_vector_norm", [](const Tensor& x) { return at::linalg_vector_norm(x, 1, 2); });
  cases.add("cumsum", [](const Tensor& x) { return x.cumsum(1); });
  // Among equal elements LibTorch chooses any.
  const MakeInput distinct = [](std::int64_t batch) {
    return torch::randperm(batch * 12).view({batch, 3, 4}).to(torch::kFloat);
  };
  cases.add("topk", [](const Tensor& x) { return x.topk(2, 2); }, {distinct});
  cases.add("topk", [](const Tensor& x) { return x.topk(2, 1, /*largest=*/false); }, {distinct});
  cases.add("sort", [](const Tensor& x) { return x.sort(2, /*descending=*/true); });
  cases.add("argsort", [](const Tensor& x) { return x.argsort(std::int64_t{1}, false); });
  cases.add("adaptive_max_pool1d",
            [first](const Tensor& x) { return first(at::adaptive_max_pool1d(x, 1)); });
  cases.add("var_mean",
            [](const Tensor& x) { return at::var_mean(x, torch::IntArrayRef{1, 2}, false, true); });
  cases.add("logsumexp",
            [](const Tensor& x) { return x.logsumexp(torch::IntArrayRef{-1, 1}, true); });
  cases.add("all", [](const Tensor& x) { return x.all(); }, {truths({2, 4})});
  cases.add("all", [](const Tensor& x) { return x.all(-1, true); }, {truths({2, 4})});
  cases.add("cumsum", [](const Tensor& x) { return x.cumsum(-1, torch::kDouble); });
  cases.add("argmax", [](const Tensor& x) { return x.argmax(std::nullopt, true); });
  cases.add("argmin", [](const Tensor& x) { return x.argmin(std::nullopt, true); });
  for (const double p : {-kInfinity, -1.0, 0.0, 0.5, 4.0}) {
    cases.add("linalg_vector_norm",
              [p](const Tensor& x) { return at::linalg_vector_norm(x, p, {1}, true); });
    cases.add("norm", [p](const Tensor& x) { return x.norm(p); });
  }
  // An empty list means all dimensions, but none in all() and any().
  const torch::IntArrayRef nothing;
  cases.add("sum", [=](const Tensor& x) { return x.sum(nothing); });
  cases.add("mean", [=](const Tensor& x) { return x.mean(nothing, true); });
  for (const bool keep : {false, true}) {
    cases.add("all", [=](const Tensor& x) { return x.all(nothing, keep); }, {truths({2, 4})});
    cases.add("any", [=](const Tensor& x) { return x.any(nothing, keep); }, {truths({2, 4})});
  }
  cases.add("all", [](const Tensor& x) { return x.all(torch::IntArrayRef{1, 2}); },
            {truths({2, 4})});
  cases.add("any", [](const Tensor& x) { return x.any(torch::IntArrayRef{0, -1}, true); },
            {truths({2, 4})});
  // There is no element to reduce.
  const auto cut = [](const Tensor& x) { return x.slice(1, 0, 0); };
  cases.add("mean", [=](const Tensor& x) { return cut(x).mean(1); });
  cases.add("var_mean", [=](const Tensor& x) { return at::var_mean(cut(x), 1); });
  cases.add("sum", [=](const Tensor& x) { return cut(x).sum(1); }, {integers(0, 9, {3, 4})});
  cases.add("prod", [=](const Tensor& x) { return cut(x).prod(1); }, {integers(0, 9, {3, 4})});
  cases.add("all", [=](const Tensor& x) { return cut(x).all(1); }, {truths({3, 4})});
  cases.add("any", [=](const Tensor& x) { return cut(x).any(1); }, {truths({3, 4})});
  // For a batch of one, there is no element to reduce.
  const auto rest = [](const Tensor& x) { return x.slice(0, 1); };
  for (const bool keep : {false, true}) {
    cases.add("mean", [=](const Tensor& x) { return rest(x).mean(0, keep); });
    cases.add("mean", [=](const Tensor& x) { return rest(x).mean({2, 0}, keep); });
    cases.add("sum", [=](const Tensor& x) { return rest(x).sum(0, keep); },
              {integers(0, 9, {3, 4})});
    cases.add("sum", [=](const Tensor& x) { return rest(x).sum({1, 0}, keep); },
              {integers(0, 9, {3, 4})});
    cases.add("sum", [=](const Tensor& x) { return rest(x).sum(0, keep); });
    cases.add("prod", [=](const Tensor& x) { return rest(x).prod(0, keep); });
    cases.add("logsumexp", [=](const Tensor& x) { return rest(x).logsumexp(0, keep); });
    cases.add("norm", [=](const Tensor& x) { return rest(x).norm(2, 0, keep); });
    cases.add("linalg_vector_norm",
              [=](const Tensor& x) { return at::linalg_vector_norm(rest(x), 1, 0, keep); });
    cases.add("all", [=](const Tensor& x) { return rest(x).all(0, keep); }, {truths({3, 4})});
    cases.add("any", [=](const Tensor& x) { return rest(x).any(0, keep); }, {truths({3, 4})});
  }
  cases.add("mean", [=](const Tensor& x) { return rest(x).mean(); });
  cases.add("sum", [=](const Tensor& x) { return rest(x).sum(); }, {integers(0, 9, {3, 4})});
  cases.add("dot", [=](const Tensor& x) { return rest(x).dot(rest(x)); }, {integers(0, 9, {})});
  // Over all elements in another type, and of a sample.
  cases.add("sum", [](const Tensor& x) { return x.sum(torch::kDouble); });
  cases.add("mean", [](const Tensor& x) { return x.mean(torch::kDouble); });
  cases.add("var", [](const Tensor& x) { return x[0].var(false); });
  cases.add("std", [](const Tensor& x) { return x[0].std(true); });
  cases.add("var_mean", [](const Tensor& x) { return at::var_mean(x[0], false); });
  // LibTorch adds up squares of float32 in float64. In a reduction over a whole tensor, as over one
  // row, it rounds the mean to float32 first.
  for (const std::vector<double>& numbers :
       {std::vector<double>{1e-23, 2e-23, 7e-23}, std::vector<double>{3e38, -1e38, 2e38, 1e38},
        std::vector<double>{1.2e19, -1.2e19, 1.2e19, -1.2e19, 1.2e19, -1.2e19, 1.2e19},
        std::vector<double>{10000, 10000.01, 10000.03}}) {
    const MakeInput row = rows_of(numbers);
    const auto twice = [](const Tensor& x) { return x.unsqueeze(1).repeat({1, 2, 1}); };
    cases.add("std", [=](const Tensor& x) { return twice(x).std(2); }, {row});
    cases.add("var", [=](const Tensor& x) { return twice(x).var(2); }, {row});
    cases.add("std_mean", [=](const Tensor& x) { return at::std_mean(twice(x), 2); }, {row});
    cases.add("var_mean", [=](const Tensor& x) { return at::var_mean(twice(x), 2); }, {row});
  }
  cases.add("count_nonzero", [](const Tensor& x) { return x.relu().count_nonzero(); });
  cases.add("count_nonzero", [](const Tensor& x) {
    return x.relu().count_nonzero(std::optional<std::int64_t>(-1));
  });
  cases.add("count_nonzero",
            [](const Tensor& x) { return x.relu().count_nonzero(torch::IntArrayRef{1, 2}); });
  cases.add("count_nonzero",
            [](const Tensor& x) { return x.count_nonzero(std::optional<std::int64_t>(1)); },
            {rows_of({0, -0.0, std::numeric_limits<double>::quiet_NaN(), 1e-30, 2})});
  cases.add("diff", [](const Tensor& x) { return x.diff(); });
  cases.add("diff", [](const Tensor& x) { return x.diff(2, 1); });
  cases.add("diff", [](const Tensor& x) { return x.diff(1, 0); });
  cases.add("diff", [](const Tensor& x) { return x.diff(1, 1); }, {truths({5})});
  const std::vector<MakeInput> pair = {floats({3, 4}), floats({3, 4})};
  using at::Reduction::Reduction;
  for (const auto way : {Reduction::None, Reduction::Mean, Reduction::Sum}) {
    cases.add(
        "l1_loss", [way](const Tensor& x, const Tensor& y) { return at::l1_loss(x, y, way); },
        pair);
    cases.add(
        "mse_loss", [way](const Tensor& x, const Tensor& y) { return at::mse_loss(x, y, way); },
        pair);
    cases.add(
        "smooth_l1_loss",
        [way](const Tensor& x, const Tensor& y) { return at::smooth_l1_loss(x, y, way, 0.7); },
        pair);
    cases.add(
        "huber_loss",
        [way](const Tensor& x, const Tensor& y) { return at::huber_loss(x, y, way, 0.7); }, pair);
    // For a batch of one, there is no loss.
    cases.add(
        "l1_loss",
        [=](const Tensor& x, const Tensor& y) { return at::l1_loss(rest(x), rest(y), way); }, pair);
    cases.add(
        "mse_loss",
        [=](const Tensor& x, const Tensor& y) { return at::mse_loss(rest(x), rest(y), way); },
        pair);
    cases.add(
        "smooth_l1_loss",
        [=](const Tensor& x, const Tensor& y) {
          return at::smooth_l1_loss(rest(x), rest(y), way, 0.7);
        },
        pair);
    cases.add(
        "huber_loss",
        [=](const Tensor& x, const Tensor& y) {
          return at::huber_loss(rest(x), rest(y), way, 0.7);
        },
        pair);
  }
  // Half of a square may be a number of float16 or float32 where the square is infinite.
  cases.add("smooth_l1_loss",
            [](const Tensor& x) {
              return at::smooth_l1_loss(x, torch::zeros_like(x), at::Reduction::None, 400);
            },
            {rows_of({300, -300, 3, 500})});
  cases.add("smooth_l1_loss",
            [](const Tensor& x) {
              return at::smooth_l1_loss(x, torch::zeros_like(x), at::Reduction::None, 3e19);
            },
            {rows_of({2e19, -2e19, 3})});
  cases.add("norm",
            [](const Tensor& x) { return x.norm(std::nullopt, torch::IntArrayRef{1}, true); });
  cases.add("linalg_vector_norm", [](const Tensor& x) {
    return at::linalg_vector_norm(x, 2, torch::IntArrayRef{1}, false, torch::kDouble);
  });
}

}  // namespace lockstep::testing_support
