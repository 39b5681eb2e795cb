#include <lockstep/cli/bench_table_rows.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>

#include <nlohmann/json.hpp>

#include <lockstep/cli/json_text.h>
#include <lockstep/cli/quantile.h>
#include <lockstep/core/error.h>
#include <lockstep/report/text.h>

namespace lockstep {
namespace {

constexpr std::size_t kTableColumnCount = 8;
constexpr std::array<const char*, kTableColumnCount> kTableTitles = {
    "ranks",             "threads", "batch per rank", "iterations per epoch",
    "seconds per epoch", "img/s",   "efficiency",     "first epoch, s"};

using TableCells = std::array<std::string, kTableColumnCount>;

TableCells cells_of(const BenchTableRow& row) {
  return {std::to_string(row.ranks),
          std::to_string(row.threads_per_rank),
          std::to_string(row.batch_per_rank),
          std::to_string(row.iterations_per_epoch),
          fixed_text(row.epoch_s, 3),
          count_text(row.images_per_second),
          row.efficiency ? fixed_text(*row.efficiency, 2) : "-",
          fixed_text(row.first_epoch_s, 3)};
}

std::string plain_table(const std::vector<BenchTableRow>& rows) {
  std::array<int, kTableColumnCount> widths{};
  TableCells titles;
  for (std::size_t i = 0; i < titles.size(); ++i) {
    titles[i] = kTableTitles[i];
    widths[i] = static_cast<int>(titles[i].size());
  }
  std::string text = padded_cells(titles, widths) + "\n";
  for (const BenchTableRow& row : rows) text += padded_cells(cells_of(row), widths) + "\n";
  return text;
}

std::string markdown_table(const std::vector<BenchTableRow>& rows) {
  std::string text = "| " + join(kTableTitles, " | ") + " |\n|";
  for (std::size_t i = 0; i < kTableColumnCount; ++i) text += "---|";
  for (const BenchTableRow& row : rows) text += "\n| " + join(cells_of(row), " | ") + " |";
  return text + "\n";
}

nlohmann::ordered_json row_json(const BenchTableRow& row) {
  nlohmann::ordered_json json{{"recipe", row.recipe},
                              {"strategy", row.strategy},
                              {"loader", row.loader},
                              {"device", row.device},
                              {"ranks", row.ranks},
                              {"threads_per_rank", row.threads_per_rank},
                              {"batch_per_rank", row.batch_per_rank},
                              {"iterations_per_epoch", row.iterations_per_epoch},
                              {"first_epoch_s", row.first_epoch_s},
                              {"epoch_s", row.epoch_s},
                              {"images_per_second", row.images_per_second},
                              {"efficiency", nullptr},
                              {"data_wait_s", row.data_wait_s},
                              {"exposed_communication_s", row.exposed_communication_s},
                              {"seconds_to_first_step", row.seconds_to_first_step},
                              {"peak_rss_bytes", row.peak_rss_bytes}};
  if (row.efficiency) json["efficiency"] = *row.efficiency;
  return json;
}

std::string json_rows(const std::vector<BenchTableRow>& rows) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const BenchTableRow& row : rows) json.push_back(row_json(row));
  return json_text(json);
}

// A line for each row under the names of the JSON, with the same values: texts have no commas.
std::string csv_rows(const std::vector<BenchTableRow>& rows) {
  std::string text;
  for (const BenchTableRow& row : rows) {
    std::vector<std::string> names;
    std::vector<std::string> values;
    const nlohmann::ordered_json json = row_json(row);
    for (const auto& [name, value] : json.items()) {
      names.push_back(name);
      if (value.is_null()) {
        values.emplace_back();
      } else {
        values.push_back(value.is_string() ? value.get<std::string>() : value.dump());
      }
    }
    if (text.empty()) text = join(names, ",") + "\n";
    text += join(values, ",") + "\n";
  }
  return text;
}

// The median over the epochs after the first, which also warms up; over the first if it is alone.
template <class Value>
double median_of_epochs(const nlohmann::json& epochs, const Value& value) {
  std::vector<double> values;
  for (std::size_t i = epochs.size() > 1 ? 1 : 0; i < epochs.size(); ++i) {
    values.push_back(value(epochs.at(i)));
  }
  return median(values);
}

BenchTableRow row_of_report(const nlohmann::json& run) {
  const nlohmann::json& epochs = run.at("epochs");
  if (epochs.empty()) throw DataError("bench table: the run has no epochs");
  BenchTableRow row;
  row.recipe = run.at("recipe").get<std::string>();
  row.strategy = run.at("strategy").get<std::string>();
  row.loader = run.at("loader").get<std::string>();
  row.device = run.at("device").get<std::string>();
  row.ranks = run.at("world_size").get<int>();
  row.threads_per_rank = run.at("threads_per_rank").get<int>();
  row.batch_per_rank = run.at("global_batch").get<std::int64_t>() / row.ranks;
  row.iterations_per_epoch = run.at("steps_per_epoch").get<std::int64_t>();
  row.first_epoch_s = epochs.at(0).at("seconds").get<double>();
  using Epoch = nlohmann::json;
  row.epoch_s =
      median_of_epochs(epochs, [](const Epoch& e) { return e.at("seconds").get<double>(); });
  row.images_per_second = median_of_epochs(
      epochs, [](const Epoch& e) { return e.at("images_per_second").get<double>(); });
  row.data_wait_s = median_of_epochs(
      epochs, [](const Epoch& e) { return e.at("phases").at("data").get<double>(); });
  row.exposed_communication_s = median_of_epochs(
      epochs, [](const Epoch& e) { return e.at("phases").at("communication").get<double>(); });
  row.seconds_to_first_step = run.at("seconds_to_first_step").get<double>();
  row.peak_rss_bytes = run.at("peak_rss_bytes").get<std::int64_t>();
  return row;
}

}  // namespace

BenchTableRow table_row_of(const std::string& json) {
  try {
    return row_of_report(nlohmann::json::parse(json));
  } catch (const nlohmann::json::exception& error) {
    throw DataError(lockstep::str("bench table: this is no record of a run: ", error.what()));
  }
}

void set_efficiencies(std::vector<BenchTableRow>& rows) {
  for (BenchTableRow& row : rows) {
    const auto alone = std::find_if(rows.begin(), rows.end(), [&](const BenchTableRow& other) {
      return other.ranks == 1 && other.batch_per_rank == row.batch_per_rank;
    });
    if (alone == rows.end() || alone->images_per_second <= 0) continue;
    row.efficiency = row.images_per_second / (row.ranks * alone->images_per_second);
  }
}

const std::vector<std::string>& bench_table_formats() {
  static const std::vector<std::string> formats = {"table", "markdown", "csv", "json"};
  return formats;
}

std::string bench_table_text(const std::vector<BenchTableRow>& rows, const std::string& format) {
  if (format == "markdown") return markdown_table(rows);
  if (format == "csv") return csv_rows(rows);
  if (format == "json") return json_rows(rows);
  return plain_table(rows);
}

}  // namespace lockstep
