#include <lockstep/report/loggers/csv_logger.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/logged_text.h>
#include <lockstep/report/csv_cell.h>

namespace lockstep::report {
namespace {

constexpr formats::NumberWords kCsvNumberWords{"nan", "inf", "-inf"};

std::string csv_header(const std::vector<std::string>& columns) {
  std::string header = "step,time";
  for (const std::string& column : columns) header.append(",").append(csv_cell(column));
  return header + '\n';
}

// The rows of a table whose header has `header_bytes`, with empty cells appended to each.
std::string widened_rows(std::string_view table, std::size_t header_bytes, std::size_t cells) {
  const std::string commas(cells, ',');
  std::string rows;
  for (const char letter : table.substr(header_bytes)) {
    if (letter == '\n') rows += commas;  // rows contain only numbers, so every line feed ends a row
    rows += letter;
  }
  return rows;
}

}  // namespace

CsvLogger::CsvLogger(const std::filesystem::path& folder)
    : folder_(folder), path_(folder / "metrics.csv") {
  std::error_code ignored;
  if (std::filesystem::exists(path_, ignored)) {
    throw DataError(str("cannot write ", path_.string(),
                        ": it exists; every run needs a folder "
                        "of its own"));
  }
}

void CsvLogger::log_hyper_parameters(std::span<const HyperParameter> parameters) {
  write_hyper_parameters(folder_, parameters);
}

void CsvLogger::log_scalars(const LogMoment& moment, std::span<const NamedValue> values) {
  if (!file_ || !std::ranges::all_of(values, [this](const NamedValue& value) {
        return places_.contains(value.name);
      })) {
    add_columns(values);
  }
  cells_.assign(columns_.size(), nullptr);
  for (const NamedValue& value : values) cells_[places_.find(value.name)->second] = &value;
  row_ = std::to_string(moment.step);
  row_ += ',';
  formats::append_seconds(row_, moment.time);
  for (const NamedValue* cell : cells_) {
    row_ += ',';
    if (cell != nullptr) formats::append_number(row_, cell->value, kCsvNumberWords);
  }
  row_ += '\n';
  file_->append(row_);
}

void CsvLogger::log_table(const LogMoment& moment, std::string_view name,
                          const LoggedTable& table) {
  std::string begin = std::to_string(moment.step) + ',';
  formats::append_seconds(begin, moment.time);
  begin += ',' + csv_cell(name) + ',';
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < std::max(table.rows.size(), table.width()); ++i) {
    labels.push_back(csv_cell(table.label(i)));
  }
  std::string rows;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    for (std::size_t column = 0; column < table.rows[row].size(); ++column) {
      rows.append(begin).append(labels[row]).append(",").append(labels[column]).append(",");
      formats::append_number(rows, table.rows[row][column], kCsvNumberWords);
      rows += '\n';
    }
  }
  if (!tables_) {
    tables_.emplace(folder_ / "tables.csv", AppendMode::kCreate);
    tables_->append("step,time,name,row,column,value\n");
  }
  tables_->append(rows);
}

void CsvLogger::add_columns(std::span<const NamedValue> values) {
  std::vector<std::string> columns = columns_;
  for (const NamedValue& value : values) {
    if (places_.emplace(value.name, columns.size()).second) columns.emplace_back(value.name);
  }
  const std::size_t added = columns.size() - columns_.size();
  const std::size_t old_header_bytes = csv_header(columns_).size();
  columns_ = std::move(columns);
  std::string table = csv_header(columns_);
  if (file_) {
    const MappedFile old(path_);
    const std::span<const std::byte> bytes = old.bytes();
    table += widened_rows({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                          old_header_bytes, added);
  }
  write_file_atomically(path_, table);
  file_.emplace(path_, AppendMode::kContinue);
}

void write_hyper_parameters(const std::filesystem::path& folder,
                            std::span<const HyperParameter> parameters) {
  std::string json = "{";
  const char* before = "\n  ";
  for (const HyperParameter& parameter : parameters) {
    json.append(before).append(formats::json_string(parameter.name)).append(": ");
    json.append(formats::json_value(parameter));
    before = ",\n  ";
  }
  write_file_atomically(folder / "hyper_parameters.json", json + "\n}\n");
}

}  // namespace lockstep::report
