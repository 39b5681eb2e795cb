#include <lockstep/train/task/metrics.h>

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

constexpr std::string_view kLoss = "loss";
constexpr std::string_view kAccuracy = "accuracy";

// Each sum's line begins with its unit.
constexpr char kNumberLine = 'n';
constexpr char kFractionLine = 'f';

torch::Tensor as_float64(const torch::Tensor& scalar) {
  return scalar.detach().to(torch::kFloat64).reshape({});
}

// The contents of a rank's metrics: their states in one text, the sums in another.
struct RankNames {
  std::string metrics{};
  std::string sums{};
};

RankNames names_in(const std::string& text) {
  const std::size_t end = text.find('\0');
  return {.metrics = text.substr(0, end), .sums = text.substr(end + 1)};
}

// The names in the lines of RankNames::sums, formatted for a message.
std::string names_for_people(const std::string& lines) {
  std::istringstream in(lines);
  std::vector<std::string> names;
  for (std::string line; std::getline(in, line);) names.push_back(line.substr(1));
  return names.empty() ? "nothing" : join(names);
}

}  // namespace

Metrics::Metrics(std::vector<MetricPtr> metrics) : metrics_(std::move(metrics)) {
  for (const MetricPtr& metric : metrics_) metric->reset();
}

Metrics::Sum& Metrics::sum_named(std::string_view name, std::int64_t samples, MetricUnit unit) {
  if (samples < 0) {
    throw ConfigError(
        lockstep::str("Metrics: '", name, "' has ", samples, " samples; expected at least 0"));
  }
  for (Sum& sum : sums_) {
    if (sum.name != name) continue;
    sum.samples += static_cast<double>(samples);
    return sum;
  }
  if (name.empty() || name.find('\n') != std::string_view::npos) {
    const std::string_view first_line = name.substr(0, name.find('\n'));
    throw ConfigError(
        lockstep::str("Metrics: a name must not be empty or contain a line feed, got "
                      "'",
                      first_line, "'", name.empty() ? "" : " and more lines"));
  }
  sums_.push_back({.name = std::string(name), .unit = unit});
  sums_.back().samples = static_cast<double>(samples);
  return sums_.back();
}

void Metrics::add_sum(std::string_view name, double sum, std::int64_t samples, MetricUnit unit) {
  sum_named(name, samples, unit).sum += sum;
}

void Metrics::add_sum(std::string_view name, const torch::Tensor& sum, std::int64_t samples,
                      MetricUnit unit) {
  if (sum.is_cpu()) return add_sum(name, sum.item<double>(), samples, unit);
  const torch::NoGradGuard no_grad;
  torch::Tensor& total = sum_named(name, samples, unit).device_sum;
  // Copied on first use, because the caller may change its tensor.
  if (total.defined()) {
    total.add_(as_float64(sum).to(total.device()));
  } else {
    total = as_float64(sum).clone();
  }
}

// A mean over no samples is NaN and is not counted.
void Metrics::add(std::string_view name, double mean, std::int64_t samples, MetricUnit unit) {
  add_sum(name, samples == 0 ? 0.0 : mean * static_cast<double>(samples), samples, unit);
}

void Metrics::add(std::string_view name, const torch::Tensor& mean, std::int64_t samples,
                  MetricUnit unit) {
  if (samples == 0 || mean.is_cpu()) {
    return add(name, samples == 0 ? 0.0 : mean.item<double>(), samples, unit);
  }
  const torch::NoGradGuard no_grad;
  add_sum(name, as_float64(mean) * static_cast<double>(samples), samples, unit);
}

void Metrics::add(const torch::Tensor& loss_sum, const torch::Tensor& correct,
                  std::int64_t samples) {
  add_sum(kLoss, loss_sum, samples);
  if (correct.defined()) add_sum(kAccuracy, correct, samples, MetricUnit::kFraction);
}

void Metrics::add(double loss_sum, double correct, std::int64_t samples) {
  add_sum(kLoss, loss_sum, samples);
  add_sum(kAccuracy, correct, samples, MetricUnit::kFraction);
}

void Metrics::update(const torch::Tensor& output, const torch::Tensor& target) {
  for (const MetricPtr& metric : metrics_) metric->update(output, target);
}

std::vector<double> Metrics::totals() const {
  std::vector<torch::Tensor> on_device;
  for (const Sum& sum : sums_) {
    if (!sum.device_sum.defined()) continue;
    on_device.push_back(on_device.empty() ? sum.device_sum
                                          : sum.device_sum.to(on_device.front().device()));
  }
  torch::Tensor host;  // copied in one piece, with a single wait
  if (!on_device.empty()) host = torch::stack(on_device).cpu();
  std::vector<double> totals;
  std::int64_t next = 0;
  for (const Sum& sum : sums_) {
    const bool has_more = sum.device_sum.defined();
    totals.push_back(sum.sum + (has_more ? host[next].item<double>() : 0.0));
    if (has_more) ++next;
  }
  return totals;
}

void Metrics::all_reduce(ProcessGroup& group, torch::Device device) {
  if (group.size() == 1) return;
  const torch::NoGradGuard no_grad;
  agree_on_names(group);
  reduce_sums(group, device);
  reduce_metrics(group, device);
}

// Adopts the names of the other ranks if this rank has none because it had no batch.
void Metrics::agree_on_names(ProcessGroup& group) {
  std::ostringstream own;
  for (const MetricPtr& metric : metrics_) {
    own << metric->name();
    for (const torch::Tensor& state : metric->state()) own << ' ' << state.sizes();
    own << '\n';
  }
  own << '\0';
  for (const Sum& sum : sums_) {
    own << (sum.unit == MetricUnit::kFraction ? kFractionLine : kNumberLine) << sum.name << '\n';
  }
  const std::vector<std::string> texts = group.all_gather_object(own.str());
  const std::string metrics = names_in(texts.front()).metrics;
  std::size_t first = texts.size();  // first rank that has sums
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const RankNames names = names_in(texts[rank]);
    if (names.metrics != metrics) {
      throw ConfigError(lockstep::str("Metrics: ranks 0 and ", rank,
                                      " have different metrics, or states of other sizes; give "
                                      "the task the same ones on every rank"));
    }
    if (names.sums.empty()) continue;
    if (first == texts.size()) first = rank;
    const std::string sums = names_in(texts[first]).sums;
    if (names.sums == sums) continue;
    throw ConfigError(lockstep::str("Metrics: rank ", first, " has added ", names_for_people(sums),
                                    ", but rank ", rank, " ", names_for_people(names.sums),
                                    "; every rank must add the same names in the same order"));
  }
  if (!sums_.empty() || first == texts.size()) return;
  std::istringstream lines(names_in(texts[first]).sums);
  for (std::string line; std::getline(lines, line);) {
    sum_named(line.substr(1), 0,
              line.front() == kFractionLine ? MetricUnit::kFraction : MetricUnit::kNumber);
  }
}

void Metrics::reduce_sums(ProcessGroup& group, torch::Device device) {
  if (sums_.empty()) return;
  std::vector<double> numbers = totals();
  for (const Sum& sum : sums_) numbers.push_back(sum.samples);
  torch::Tensor tensor = torch::tensor(numbers, torch::kFloat64).to(device);
  group.all_reduce(tensor, ReduceOp::kSum);
  tensor = tensor.cpu();
  const double* const reduced = tensor.const_data_ptr<double>();
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    sums_[i].sum = reduced[i];
    sums_[i].device_sum = torch::Tensor();
    sums_[i].samples = reduced[sums_.size() + i];
  }
}

void Metrics::reduce_metrics(ProcessGroup& group, torch::Device device) {
  Tensors states, on_device;
  for (const MetricPtr& metric : metrics_) {
    for (const torch::Tensor& state : metric->state()) {
      if (state.numel() == 0) continue;
      states.push_back(state);
      on_device.push_back(state.to(device).contiguous());
    }
  }
  if (states.empty()) return;
  group.all_reduce_coalesced(on_device, ReduceOp::kSum);
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (!on_device[i].is_same(states[i])) states[i].copy_(on_device[i]);
  }
}

Evaluation Metrics::mean() const {
  Evaluation evaluation{.has_loss = false};
  const std::vector<double> sums = totals();
  double most_samples = 0;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const double samples = sums_[i].samples;
    most_samples = std::max(most_samples, samples);
    const double mean = samples > 0 ? sums[i] / samples : std::numeric_limits<double>::quiet_NaN();
    if (sums_[i].name == kLoss) {
      evaluation.loss = mean;
      evaluation.has_loss = true;
    } else {
      evaluation.values.push_back({.name = sums_[i].name, .value = mean, .unit = sums_[i].unit});
    }
  }
  evaluation.samples = static_cast<std::int64_t>(most_samples);
  for (const MetricPtr& metric : metrics_) {
    for (MetricValue& value : metric->values()) evaluation.values.push_back(std::move(value));
    for (MetricTable& table : metric->tables()) evaluation.tables.push_back(std::move(table));
  }
  std::set<std::string> names;
  if (evaluation.has_loss) names.emplace(kLoss);
  const auto require_new = [&names](const std::string& name) {
    if (names.insert(name).second) return;
    throw ConfigError(
        lockstep::str("Metrics: two values have the name '", name, "'; give each metric its own"));
  };
  for (const MetricValue& value : evaluation.values) require_new(value.name);
  for (const MetricTable& table : evaluation.tables) require_new(table.name);
  return evaluation;
}

}  // namespace lockstep
