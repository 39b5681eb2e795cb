#include <lockstep/train/task/standard_metrics.h>

#include <cmath>
#include <limits>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {
namespace {

// Adds `more` to `state`, which first moves to the device of `more` and then stays there.
void add_to_state(torch::Tensor& state, const torch::Tensor& more) {
  if (state.device() != more.device()) state = state.to(more.device());
  state.add_(more);
}

double quotient(double sum, double count) {
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

// Whether float32 represents all values of the type exactly: whole numbers up to 16 bits, and
// floating-point numbers other than float64.
bool float32_holds(torch::ScalarType type) {
  return c10::isFloatingType(type) ? type != torch::kFloat64 : c10::elementSize(type) <= 2;
}

void require_classes(const std::string& metric, const torch::Tensor& output,
                     const torch::Tensor& target) {
  const bool fits = output.dim() == 2 && target.dim() == 1 && output.size(0) == target.size(0) &&
                    !target.is_floating_point();
  if (fits) return;
  throw ConfigError(lockstep::str(
      "metric ", metric, ": got outputs ", output.sizes(), " and targets ", target.sizes(),
      " of type ", target.scalar_type(), "; expected [N, classes] and [N] whole numbers"));
}

}  // namespace

TopKAccuracy::TopKAccuracy(std::int64_t k, std::string name)
    : k_(k), name_(name.empty() ? lockstep::str("top", k, "_accuracy") : std::move(name)) {
  OptionCheck("TopKAccuracy").at_least("k", static_cast<double>(k), 1);
  reset();
}

void TopKAccuracy::reset() {
  correct_ = torch::zeros({}, torch::kInt64);
  samples_ = torch::zeros({}, torch::kInt64);
}

void TopKAccuracy::update(const torch::Tensor& output, const torch::Tensor& target) {
  require_classes(name_, output, target);
  OptionCheck("metric " + name_)
      .at_least("the number of classes", static_cast<double>(output.size(1)),
                static_cast<double>(k_));
  const torch::Tensor best = std::get<1>(output.topk(k_, 1));
  add_to_state(correct_, best.eq(target.to(best.device()).unsqueeze(1)).sum());
  samples_.add_(target.size(0));
}

std::vector<MetricValue> TopKAccuracy::values() const {
  return {{.name = name_,
           .value = quotient(correct_.item<double>(), samples_.item<double>()),
           .unit = MetricUnit::kFraction}};
}

ConfusionMatrix::ConfusionMatrix(std::int64_t num_classes, std::vector<std::string> class_names,
                                 std::string name)
    : num_classes_(num_classes), class_names_(std::move(class_names)), name_(std::move(name)) {
  // A matrix of more classes would take more memory than a model.
  OptionCheck("ConfusionMatrix")
      .in_range("num_classes", static_cast<double>(num_classes), 1, 16384);
  if (!class_names_.empty() && class_names_.size() != static_cast<std::size_t>(num_classes)) {
    throw ConfigError(lockstep::str("ConfusionMatrix: class_names must have a name for each of ",
                                    num_classes, " classes, or none, got ", class_names_.size()));
  }
  reset();
}

void ConfusionMatrix::reset() {
  counts_ = torch::zeros({num_classes_ * num_classes_}, torch::kInt64);
}

// Uses scatter_add_, because bincount waits for a GPU to return the largest number.
void ConfusionMatrix::update(const torch::Tensor& output, const torch::Tensor& target) {
  require_classes(name_, output, target);
  if (output.size(1) != num_classes_) {
    throw ConfigError(lockstep::str("metric ", name_, ": got outputs of ", output.size(1),
                                    " classes, expected ", num_classes_));
  }
  const torch::Tensor chosen = output.argmax(1);
  const torch::Tensor place =
      target.to(chosen.device(), torch::kInt64).mul(num_classes_).add(chosen);
  if (counts_.device() != place.device()) counts_ = counts_.to(place.device());
  counts_.scatter_add_(0, place, torch::ones_like(place));
}

torch::Tensor ConfusionMatrix::matrix() const {
  return counts_.cpu().view({num_classes_, num_classes_}).clone();
}

std::vector<MetricValue> ConfusionMatrix::values() const {
  const torch::Tensor counts = matrix();
  const double all = counts.sum().item<double>();
  return {{.name = name_ + "_accuracy",
           .value = quotient(counts.diag().sum().item<double>(), all),
           .unit = MetricUnit::kFraction}};
}

std::vector<MetricTable> ConfusionMatrix::tables() const {
  const torch::Tensor counts = matrix().to(torch::kFloat64).contiguous();
  const double* const numbers = counts.const_data_ptr<double>();
  MetricTable table{.name = name_, .labels = class_names_};
  for (std::int64_t row = 0; row < num_classes_; ++row) {
    table.rows.emplace_back(numbers + row * num_classes_, numbers + (row + 1) * num_classes_);
  }
  return {std::move(table)};
}

void MeanSquaredError::reset() {
  squares_ = torch::zeros({}, torch::kFloat64);
  elements_ = torch::zeros({}, torch::kInt64);
}

void MeanSquaredError::update(const torch::Tensor& output, const torch::Tensor& target) {
  if (output.sizes() != target.sizes()) {
    throw ConfigError(lockstep::str("metric ", name_, ": got outputs ", output.sizes(),
                                    " and targets ", target.sizes(), "; expected one shape"));
  }
  // A conversion to a real type would drop the imaginary parts.
  if (output.is_complex() || target.is_complex()) {
    throw ConfigError(lockstep::str(
        "metric ", name_, ": got outputs of type ", output.scalar_type(), " and targets of type ",
        target.scalar_type(), "; expected real numbers, such as those of view_as_real()"));
  }
  const bool fits_float32 =
      float32_holds(output.scalar_type()) && float32_holds(target.scalar_type());
  const torch::ScalarType type = fits_float32 ? torch::kFloat32 : torch::kFloat64;
  const torch::Tensor difference = output.to(type) - target.to(output.device(), type);
  add_to_state(squares_, difference.square().sum(torch::kFloat64));
  elements_.add_(output.numel());
}

double MeanSquaredError::mean() const {
  return quotient(squares_.item<double>(), elements_.item<double>());
}

std::vector<MetricValue> MeanSquaredError::values() const {
  return {{.name = name_, .value = mean()}};
}

Psnr::Psnr(double data_range, std::string name)
    : MeanSquaredError(std::move(name)), data_range_(data_range) {
  OptionCheck("Psnr").positive("data_range", data_range);
}

std::vector<MetricValue> Psnr::values() const {
  return {{.name = name(), .value = 10 * std::log10(data_range_ * data_range_ / mean())}};
}

}  // namespace lockstep
