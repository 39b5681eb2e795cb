// Scalars as a table for spreadsheets and pandas.read_csv.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/append_file.h>
#include <lockstep/report/loggers/logger.h>

namespace lockstep::report {

/// Writes FOLDER/metrics.csv: a row for each call of log_scalars(), with the columns step, time
/// (seconds since 1970) and one for each name. A cell is empty if its value was not logged in that
/// call; non-finite numbers are nan, inf and -inf.
///
/// A new name adds a column: the file is then rewritten atomically, with the column in all rows.
/// Hyper-parameters go to FOLDER/hyper_parameters.json. Histograms and images are not written.
///
/// Tables go to FOLDER/tables.csv, which has a line for each number: step, time, name, row, column,
/// value. In pandas, pivot(index="row", columns="column", values="value") turns the lines with one
/// step and one name into a table.
class CsvLogger final : public Logger {
 public:
  /// The folder must exist.
  explicit CsvLogger(const std::filesystem::path& folder);

  std::string place() const override { return path_.string(); }
  void log_hyper_parameters(std::span<const HyperParameter> parameters) override;
  void log_scalars(const LogMoment& moment, std::span<const NamedValue> values) override;
  void log_table(const LogMoment& moment, std::string_view name, const LoggedTable& table) override;

 private:
  void add_columns(std::span<const NamedValue> values);

  std::filesystem::path folder_;
  std::filesystem::path path_;
  std::vector<std::string> columns_;  // after step and time
  std::map<std::string, std::size_t, std::less<>> places_;
  std::optional<AppendFile> file_;    // none until the first row, which determines its columns
  std::optional<AppendFile> tables_;  // none until the first table
  // Buffers of the current call, kept as members to reuse their memory.
  std::vector<const NamedValue*> cells_;
  std::string row_;
};

/// Writes FOLDER/hyper_parameters.json, an object.
void write_hyper_parameters(const std::filesystem::path& folder,
                            std::span<const HyperParameter> parameters);

}  // namespace lockstep::report
