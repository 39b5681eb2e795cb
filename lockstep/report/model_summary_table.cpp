#include <lockstep/report/model_summary_table.h>

#include <algorithm>
#include <array>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/report/output.h>
#include <lockstep/report/text.h>

namespace lockstep::report {
namespace {

using SummaryRow = std::array<std::string, 4>;

std::string grouped(std::int64_t count) { return count_text(static_cast<double>(count)); }

bool shows_last_operation(const ModuleSummary& module) {
  return module.output_shape.empty() && !module.last_operation_shape.empty();
}

std::string shape_cell(const ModuleSummary& module) {
  if (shows_last_operation(module)) return "~ " + join(module.last_operation_shape, " x ");
  return module.output_shape.empty() ? "-" : join(module.output_shape, " x ");
}

SummaryRow summary_row(const ModuleSummary& module) {
  return {module.name, module.type, grouped(module.trainable + module.frozen), shape_cell(module)};
}

// Columns of names are left-aligned; the last column needs no padding.
std::array<int, 4> widths_of(const std::vector<SummaryRow>& rows) {
  std::array<int, 4> widths{};
  for (const SummaryRow& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      widths[i] = std::max(widths[i], static_cast<int>(row[i].size()));
    }
  }
  widths[0] = -widths[0];
  widths[1] = -widths[1];
  return widths;
}

}  // namespace

std::string table_text(const ModelSummary& summary) {
  std::vector<SummaryRow> rows = {{"name", "type", "parameters", "output shape"}};
  for (const ModuleSummary& module : summary.modules) rows.push_back(summary_row(module));
  const std::array<int, 4> widths = widths_of(rows);
  std::string text;
  for (const SummaryRow& row : rows) text += padded_cells(row, widths) + '\n';
  if (std::ranges::any_of(summary.modules, shows_last_operation)) {
    text += "~ shape of the last operation with parameters; functions may follow in the module\n";
  }
  text += grouped(summary.trainable) + " trainable parameters, " + grouped(summary.frozen) +
          " frozen; parameters take " + bytes_text(static_cast<double>(summary.parameter_bytes)) +
          ", buffers " + bytes_text(static_cast<double>(summary.buffer_bytes)) + '\n';
  return text;
}

void ModelSummaryTable::on_model_summary(const ModelSummary& summary) {
  out_ << '\n' << table_text(summary) << '\n';
  flush_output(out_);
}

}  // namespace lockstep::report
