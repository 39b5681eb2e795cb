#include <lockstep/report/text.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <lockstep/core/strings.h>

namespace lockstep::report {
namespace {

std::string precision_text(const std::string& precision) {
  return precision == "32" ? "float32" : precision == "16" ? "float16" : precision;
}

// "of 2 pipelines of 4 stages on 2 workers (zbv, 8 micro-batches)"
std::string pipeline_words(const RunInfo& info) {
  std::string words;
  const bool has_workers = info.workers > 0;
  if (info.strategy == "hybrid" && has_workers) {
    words += " of " + count_of(info.world_size / info.workers, "pipeline");
  }
  words += " of " + count_of(info.stages, "stage");
  if (has_workers && info.workers < info.stages) words += " on " + count_of(info.workers, "worker");
  return words + " (" + info.schedule + ", " + count_of(info.micro_batches, "micro-batch") +
         (info.recompute ? ", recompute" : "") + ")";
}

// "resumes from run/checkpoints/step-00000008 in epoch 1, after step 8 of 12"
std::string resumed_line(const RunInfo& info) {
  std::string line = str("resumes from ", info.resumed_from, info.first_step > 0 ? " in" : " at",
                         " epoch ", info.first_epoch);
  if (info.first_step == 0) return line;
  return line + str(", after step ", info.first_step, " of ", info.steps_per_epoch);
}

}  // namespace

std::string fixed_text(double value, int digits) {
  if (std::isnan(value)) return "nan";  // printf shows the sign of its bits, which means nothing
  std::array<char, 400> buffer;         // holds the largest double
  std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return buffer.data();
}

std::string significant_text(double value) {
  constexpr int kDigits = 3;
  constexpr int kMostDecimals = 6;  // smaller values are 0
  if (!std::isfinite(value)) return fixed_text(value, 0);
  const auto decimals_of = [](double number) {
    return kDigits - 1 - static_cast<int>(std::floor(std::log10(std::abs(number))));
  };
  if (!(std::abs(value) >= std::pow(10, -kMostDecimals))) return "0";
  const double unit = std::pow(10, -decimals_of(value));
  const double rounded = std::round(value / unit) * unit;
  return fixed_text(rounded, std::clamp(decimals_of(rounded), 0, kMostDecimals));
}

std::string count_text(double value) {
  std::string text = fixed_text(value, 0);
  if (!std::isfinite(value)) return text;
  const int first = text[0] == '-' ? 1 : 0;
  for (int at = static_cast<int>(text.size()) - 3; at > first; at -= 3) {
    text.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return text;
}

std::string count_of(std::int64_t count, const std::string& noun) {
  return count_text(static_cast<double>(count)) + " " + noun_for(count, noun);
}

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto total = static_cast<long long>(std::llround(std::max(seconds, 0.0)));
  std::array<char, 40> buffer;
  if (total < 3600) {
    std::snprintf(buffer.data(), buffer.size(), "%lld:%02lld", total / 60, total % 60);
  } else {
    std::snprintf(buffer.data(), buffer.size(), "%lld:%02lld:%02lld", total / 3600, total / 60 % 60,
                  total % 60);
  }
  return buffer.data();
}

std::string seconds_text(double seconds) {
  if (!(seconds >= 9.995)) return fixed_text(seconds, 2) + " s";
  if (seconds < 99.95) return fixed_text(seconds, 1) + " s";
  return clock_text(seconds) + (seconds < 3599.5 ? " min" : " h");
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 999.5 && unit < 4; ++unit) bytes /= 1000;
  return fixed_text(bytes, unit > 0 && bytes < 99.95 ? 1 : 0) + " " + units[unit];
}

std::string percent_text(double fraction) { return fixed_text(fraction * 100, 2) + "%"; }

std::string padded_cells(std::span<const std::string> cells, std::span<const int> widths) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto width = static_cast<std::size_t>(std::abs(widths[i]));
    const std::string padding(width - std::min(width, cells[i].size()), ' ');
    if (i > 0) line += "  ";
    line += widths[i] < 0 ? cells[i] + padding : padding + cells[i];
  }
  return line;
}

std::string run_line(const RunInfo& info) {
  std::string line = info.recipe + ": " + info.strategy;
  if (!info.dp_loss.empty()) line += " with " + count_of(info.devices, "replica");
  if (!info.device_weights.empty()) line += " (weights " + join(info.device_weights) + ")";
  if (info.stages > 0) line += pipeline_words(info);
  if (info.world_size > 1) line += " over " + info.backend;
  line += ", " + count_of(info.world_size, "process") + " x " +
          count_of(info.threads_per_rank, "thread");
  if (info.device != "cpu") line += " on " + info.device;
  line += ", global batch " + count_text(static_cast<double>(info.global_batch));
  if (info.accumulate_grad_batches > 1) {
    line += " x " + count_text(static_cast<double>(info.accumulate_grad_batches)) + " = " +
            count_text(static_cast<double>(info.global_batch * info.accumulate_grad_batches));
  }
  if (info.learning_rate > 0) line += str(", learning rate ", info.learning_rate);
  line += ", " + precision_text(info.precision);
  if (info.precision_disables_kernels) line += " (no fused kernels)";
  line += ", " + count_of(info.parameters, "parameter");
  if (!info.dataset.empty()) line += ", " + info.dataset;
  return line;
}

std::string run_heading(const RunInfo& info) {
  std::string text = run_line(info) + '\n';
  if (!info.resumed_from.empty()) text += resumed_line(info) + '\n';
  if (info.cuts.empty()) return text;
  text += "cut after " + join(info.cuts);
  if (!info.whole_backward.empty()) {
    text += info.whole_backward.size() == 1 ? "; stage " : "; stages ";
    text += join(info.whole_backward);
    text += info.whole_backward.size() == 1 ? " computes its backward as a whole"
                                            : " compute their backward as a whole";
  }
  return text + '\n';
}

std::string epoch_name(std::int64_t epoch, std::int64_t max_epochs) {
  const std::string last = std::to_string(max_epochs);
  std::string number = std::to_string(epoch);
  if (number.size() < last.size()) number.insert(0, last.size() - number.size(), ' ');
  return "epoch " + number + "/" + last;
}

std::string metric_text(const MetricValue& value) {
  if (value.unit == MetricUnit::kFraction) return percent_text(value.value);
  const double magnitude = std::abs(value.value);
  const bool is_plain = !(magnitude > 0) || (magnitude >= 1e-3 && magnitude < 1e6);
  return is_plain || !std::isfinite(magnitude) ? fixed_text(value.value, 4) : str(value.value);
}

std::string evaluation_text(const Evaluation& evaluation) {
  std::vector<std::string> parts;
  const MetricValue* accuracy = nullptr;
  if (evaluation.has_loss) parts.push_back("loss " + fixed_text(evaluation.loss, 4));
  for (const MetricValue& value : evaluation.values) {
    if (value.name == "accuracy") {
      accuracy = &value;
    } else {
      parts.push_back(value.name + " " + metric_text(value));
    }
  }
  if (accuracy == nullptr) return parts.empty() ? "nothing" : join(parts);
  return metric_text(*accuracy) + (parts.empty() ? "" : " (" + join(parts) + ")");
}

std::string epoch_line(const EpochReport& report, std::int64_t max_epochs) {
  std::string line =
      epoch_name(report.epoch, max_epochs) + "  loss " + fixed_text(report.train_loss, 4);
  if (report.test) line += "  validation " + evaluation_text(*report.test);
  return line + "  " + count_text(report.images_per_second) + " img/s  " +
         seconds_text(report.seconds);
}

std::string evaluation_line(const EvaluationReport& report, std::int64_t max_epochs) {
  return epoch_name(report.epoch, max_epochs) + "  step " +
         count_text(static_cast<double>(report.step)) + " of " +
         count_text(static_cast<double>(report.steps_per_epoch)) + "  validation " +
         evaluation_text(report.test);
}

std::string best_text(const BestEvaluation& best) {
  const std::string value =
      metric_text({.name = best.name, .value = best.value, .unit = best.unit});
  return str(watched_text(best.name), ' ', value, " in epoch ", best.epoch);
}

std::string watched_text(const std::string& name) {
  return name == "train_loss" ? "training loss" : "validation " + name;
}

}  // namespace lockstep::report
