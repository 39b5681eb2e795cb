// The rows of table_rows.h as text.
#include <lockstep/bench/table/rows.h>

#include <algorithm>
#include <functional>

#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/csv_cell.h>
#include <lockstep/report/text.h>

namespace lockstep::bench {
namespace {

using Rows = std::vector<BenchTableRow>;

constexpr double kTableMiB = 1 << 20;
constexpr const char* kNothing = "-";

struct Column {
  const char* title;
  bool is_text;  // aligned to the left
  std::function<std::string(const BenchTableRow&)> cell;
};

std::string program_text(const BenchTableRow& row) {
  return row.way.peer ? str("PyTorch ", row.way.peer->strategy) : row.way.strategy;
}

std::string loader_text(const BenchTableRow& row) {
  if (!row.way.peer) return row.way.loader;
  const TablePeer& peer = *row.way.peer;
  return peer.workers == 0 ? peer.loader : str(peer.loader, " +", peer.workers);
}

std::string optional_text(const std::optional<double>& value, int digits) {
  return value ? report::fixed_text(*value, digits) : kNothing;
}

std::string whole_percent(const std::optional<double>& share) {
  return share ? report::fixed_text(100 * *share, 0) + "%" : kNothing;
}

std::string spread_text(const BenchTableRow& row) {
  return str(report::fixed_text(row.least_epoch_s, 3), " to ",
             report::fixed_text(row.most_epoch_s, 3));
}

bool has_kernels(const Rows& rows) {
  return std::ranges::any_of(rows, [](const auto& row) { return !row.way.fused_kernels; });
}

bool has_pipelines(const Rows& rows) {
  return std::ranges::any_of(rows, [](const auto& row) { return row.stage_waits_s > 0; });
}

bool has_gpus(const Rows& rows) {
  return std::ranges::any_of(rows, [](const auto& row) { return row.gpu_utilisation.has_value(); });
}

// The columns that identify a row.
std::vector<Column> way_columns(const Rows& rows) {
  std::vector<Column> columns = {
      {"strategy", true, program_text},
      {"loader", true, loader_text},
  };
  if (has_kernels(rows)) {
    columns.push_back({"kernels", true, [](const auto& row) -> std::string {
                         if (row.way.peer) return kNothing;
                         return row.way.fused_kernels ? "fused" : "libtorch";
                       }});
  }
  columns.push_back({"ranks", false, [](const auto& row) {
                       return std::to_string(row.ranks) + (row.oversubscribed ? "*" : "");
                     }});
  columns.push_back(
      {"threads", false, [](const auto& row) { return std::to_string(row.threads_per_rank); }});
  columns.push_back({"batch per rank", false,
                     [](const auto& row) { return std::to_string(row.batch_per_rank); }});
  return columns;
}

void add_epoch_columns(const Rows& rows, std::vector<Column>& columns) {
  const std::vector<Column> more = {
      {"iterations", false,
       [](const auto& row) { return std::to_string(row.iterations_per_epoch); }},
      {"s per epoch", false, [](const auto& row) { return report::fixed_text(row.epoch_s, 3); }},
      {"range", false, spread_text},
      {"img/s", false, [](const auto& row) { return report::count_text(row.images_per_second); }},
      {"efficiency", false, [](const auto& row) { return optional_text(row.efficiency, 2); }},
      {"CPU", false, [](const auto& row) { return whole_percent(row.cpu_utilisation); }},
      {"wait for data, s", false,
       [](const auto& row) { return report::fixed_text(row.data_wait_s, 3); }},
      {"exposed comm., s", false,
       [](const auto& row) { return optional_text(row.exposed_communication_s, 3); }},
      {"peak MiB", false,
       [](const auto& row) {
         return report::fixed_text(static_cast<double>(row.peak_rss_bytes) / kTableMiB, 0);
       }},
  };
  columns.insert(columns.end(), more.begin(), more.end());
  if (has_pipelines(rows)) {
    columns.push_back({"wait for a stage, s", false,
                       [](const auto& row) { return report::fixed_text(row.stage_waits_s, 3); }});
  }
  if (!has_gpus(rows)) return;
  columns.push_back(
      {"GPU", false, [](const auto& row) { return whole_percent(row.gpu_utilisation); }});
  columns.push_back({"GPU memory busy", false,
                     [](const auto& row) { return whole_percent(row.gpu_memory_utilisation); }});
  columns.push_back(
      {"W per GPU", false, [](const auto& row) { return optional_text(row.gpu_power_w, 0); }});
}

void add_set_up_columns(std::vector<Column>& columns) {
  const auto seconds = [](double BenchTableRow::* field) {
    return [field](const BenchTableRow& row) { return report::fixed_text(row.*field, 3); };
  };
  const std::vector<Column> more = {
      {"group, s", false, seconds(&BenchTableRow::setup_group_s)},
      {"loader, s", false, seconds(&BenchTableRow::setup_loader_s)},
      {"parallel model, s", false, seconds(&BenchTableRow::setup_model_s)},
      {"parameters, s", false, seconds(&BenchTableRow::sync_parameters_s)},
      {"first epoch, s", false, seconds(&BenchTableRow::first_epoch_s)},
      {"start to first step, s", false, seconds(&BenchTableRow::seconds_to_first_step)},
  };
  columns.insert(columns.end(), more.begin(), more.end());
}

std::vector<std::string> cells_of(const std::vector<Column>& columns, const BenchTableRow& row) {
  std::vector<std::string> cells;
  for (const Column& column : columns) cells.push_back(column.cell(row));
  return cells;
}

std::vector<std::string> titles_of(const std::vector<Column>& columns) {
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.emplace_back(column.title);
  return titles;
}

// Rows that could not be measured have notes instead of cells.
Rows measured(const Rows& rows) {
  Rows those;
  for (const BenchTableRow& row : rows) {
    if (row.error.empty()) those.push_back(row);
  }
  return those;
}

std::string plain_table(const std::vector<Column>& columns, const Rows& rows) {
  std::vector<std::vector<std::string>> lines = {titles_of(columns)};
  for (const BenchTableRow& row : rows) lines.push_back(cells_of(columns, row));
  std::vector<int> widths(columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    for (const auto& line : lines)
      widths[i] = std::max(widths[i], static_cast<int>(line[i].size()));
    if (columns[i].is_text) widths[i] = -widths[i];
  }
  std::string text;
  for (const auto& line : lines) text += report::padded_cells(line, widths) + "\n";
  return text;
}

std::string markdown_table(const std::vector<Column>& columns, const Rows& rows) {
  std::string text = "| " + join(titles_of(columns), " | ") + " |\n|";
  for (const Column& column : columns) text += column.is_text ? "---|" : "---:|";
  for (const BenchTableRow& row : rows) {
    text += "\n| " + join(cells_of(columns, row), " | ") + " |";
  }
  return text + "\n";
}

// The first epoch of each run is excluded if there are others.
bool includes_warm_up(const BenchTableNotes& notes) { return notes.epochs == 1; }

// The meaning of the columns, one sentence each.
std::vector<std::string> sentences(const Rows& rows, const BenchTableNotes& notes) {
  std::vector<std::string> lines;
  if (notes.max_steps) {
    lines.push_back(str("An epoch was cut to ", amount_of(*notes.max_steps, "step"), "."));
  }
  lines.emplace_back(
      includes_warm_up(notes)
          ? "Seconds are those of the only epoch of each run, warm-up included: its "
            "first steps are slower, and it decodes the images; more epochs exclude it."
          : "Seconds are medians of the epochs after the first of each run, with their range; the "
            "first warms up.");
  lines.emplace_back(
      "Efficiency of N ranks: their images/s, divided by N times those of one rank with the same "
      "batch per rank.");
  if (std::ranges::any_of(rows, [](const auto& row) {
        return row.way.strategy == "single" && row.way.ranks > 1;
      })) {
    lines.emplace_back(
        "One process with several threads has the batch of several ranks; its efficiency is that "
        "of several ranks.");
  }
  lines.emplace_back(
      "CPU: processors that a rank keeps busy, waiting by spinning included; peak MiB: of rank 0.");
  if (std::ranges::any_of(rows, [](const auto& row) { return row.oversubscribed; })) {
    lines.emplace_back("* More compute threads than processors: ranks share a processor.");
  }
  for (const BenchTableRow& row : rows) {
    if (!row.error.empty()) lines.push_back(str(name_of(row.way), " failed: ", row.error));
  }
  lines.insert(lines.end(), notes.more.begin(), notes.more.end());
  return lines;
}

std::string text_of(const Rows& rows, const BenchTableNotes& notes, bool is_markdown) {
  const Rows those = measured(rows);
  const auto table = is_markdown ? markdown_table : plain_table;
  std::vector<Column> epochs = way_columns(those);
  std::vector<Column> set_up = epochs;
  add_epoch_columns(those, epochs);
  add_set_up_columns(set_up);
  std::string text = table(epochs, those);
  text += str("\nSet-up, before the first step:\n", is_markdown ? "\n" : "", table(set_up, those),
              '\n');
  for (const std::string& line : sentences(rows, notes)) {
    text += (is_markdown ? "- " : "") + line + "\n";
  }
  return text;
}

nlohmann::ordered_json optional_json(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

nlohmann::ordered_json row_json(const BenchTableRow& row, const BenchTableNotes& notes) {
  nlohmann::ordered_json json{
      {"recipe", row.recipe},
      {"strategy", row.way.peer ? row.way.peer->strategy : row.way.strategy},
      {"loader", row.way.peer ? row.way.peer->loader : row.way.loader},
      {"fused_kernels", row.way.fused_kernels && !row.way.peer},
      {"device", row.device},
      {"backend", row.backend},
      {"ranks", row.ranks},
      {"threads_per_rank", row.threads_per_rank},
      {"oversubscribed", row.oversubscribed},
      {"batch_per_rank", row.batch_per_rank},
      {"iterations_per_epoch", row.iterations_per_epoch},
      {"rounds", row.rounds},
      {"epochs", notes.epochs},
      {"max_steps",
       notes.max_steps ? nlohmann::ordered_json(*notes.max_steps) : nlohmann::ordered_json()},
      {"includes_warm_up", includes_warm_up(notes)},
      {"setup_group_s", row.setup_group_s},
      {"setup_loader_s", row.setup_loader_s},
      {"setup_model_s", row.setup_model_s},
      {"sync_parameters_s", row.sync_parameters_s},
      {"first_epoch_s", row.first_epoch_s},
      {"epoch_s", row.epoch_s},
      {"epoch_least_s", row.least_epoch_s},
      {"epoch_most_s", row.most_epoch_s},
      {"images_per_second", row.images_per_second},
      {"efficiency", optional_json(row.efficiency)},
      {"cpu_utilisation", row.cpu_utilisation},
      {"gpu_utilisation", optional_json(row.gpu_utilisation)},
      {"gpu_memory_utilisation", optional_json(row.gpu_memory_utilisation)},
      {"gpu_power_w", optional_json(row.gpu_power_w)},
      {"data_wait_s", row.data_wait_s},
      {"exposed_communication_s", optional_json(row.exposed_communication_s)},
      {"stage_waits_s", row.stage_waits_s},
      {"seconds_to_first_step", row.seconds_to_first_step},
      {"peak_rss_bytes", row.peak_rss_bytes},
      {"peer", row.peer.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(row.peer)},
      {"error", row.error.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(row.error)},
      {"precision", row.precision},
      {"global_batch", row.global_batch},
      {"accumulate_grad_batches", row.accumulate_grad_batches}};
  return json;
}

std::string json_rows(const Rows& rows, const BenchTableNotes& notes) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const BenchTableRow& row : rows) {
    json.push_back(row_json(row, notes));
    json.back()["notes"] = sentences(rows, notes);
  }
  return json_text(json);
}

// A line for each row, with the names and values of the JSON.
std::string csv_rows(const Rows& rows, const BenchTableNotes& notes) {
  std::string text;
  for (const BenchTableRow& row : rows) {
    std::vector<std::string> names;
    std::vector<std::string> values;
    nlohmann::ordered_json json = row_json(row, notes);
    json["notes"] = join(sentences(rows, notes), " ");
    for (const auto& [name, value] : json.items()) {
      names.push_back(name);
      if (value.is_null()) {
        values.emplace_back();
      } else {
        values.push_back(value.is_string() ? report::csv_cell(value.get<std::string>())
                                           : value.dump());
      }
    }
    if (text.empty()) text = join(names, ",") + "\n";
    text += join(values, ",") + "\n";
  }
  return text;
}

}  // namespace

const std::vector<std::string>& bench_table_formats() {
  static const std::vector<std::string> formats = {"table", "markdown", "csv", "json"};
  return formats;
}

std::string bench_table_text(const Rows& rows, const BenchTableNotes& notes,
                             const std::string& format) {
  if (format == "csv") return csv_rows(rows, notes);
  if (format == "json") return json_rows(rows, notes);
  return text_of(rows, notes, format == "markdown");
}

}  // namespace lockstep::bench
