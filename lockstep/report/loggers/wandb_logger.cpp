#include <lockstep/report/loggers/wandb_logger.h>

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/logged_text.h>
#include <lockstep/formats/png.h>

namespace lockstep::report {
namespace {

namespace fs = std::filesystem;

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  LOCKSTEP_CHECK(
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) == 1,
      "OpenSSL cannot compute SHA-256");
  return hex_text(std::span(digest).first(length));
}

// The part of a media file's path that comes from the logged name. A slash makes a folder, as in
// wandb's own client; any other character that could lead elsewhere is replaced.
std::string media_name(std::string_view name) {
  std::string text(name);
  for (char& letter : text) {
    const bool is_kept =
        formats::is_ascii_alphanumeric(letter) || letter == '/' || letter == '_' || letter == '-';
    if (!is_kept) letter = '_';
  }
  const std::size_t begin = text.find_first_not_of('/');
  return begin == std::string::npos ? "unnamed" : text.substr(begin);
}

std::string histogram_json(const Histogram& histogram) {
  std::string json = "{\"_type\":\"histogram\",\"values\":";
  formats::append_numbers(json, histogram.counts, formats::kJsonNumberWords);
  json += ",\"bins\":";
  formats::append_numbers(json, histogram.edges, formats::kJsonNumberWords);
  return json + '}';
}

// The content of a table's file: row labels are the first column, and all rows have as many cells
// as there are columns.
std::string table_file(std::string_view name, const LoggedTable& table) {
  const std::size_t width = table.width();
  std::string json = "{\"columns\":[" + formats::json_string(name);
  for (std::size_t column = 0; column < width; ++column) {
    json += ',' + formats::json_string(table.label(column));
  }
  json += "],\"data\":[";
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    json += (row == 0 ? "[" : ",[") + formats::json_string(table.label(row));
    for (const double number : table.rows[row]) {
      json += ',';
      formats::append_number(json, number, formats::kJsonNumberWords);
    }
    for (std::size_t i = table.rows[row].size(); i < width; ++i) json += ",null";
    json += ']';
  }
  return json + "]}";
}

}  // namespace

WandbLogger::WandbLogger(const WandbLoggerOptions& options)
    : folder_(options.directory / "wandb" /
              str("offline-run-", options.run.date_time, '-', options.run.id)) {
  make_folder(folder_ / "files");
  file_.emplace(folder_ / str("run-", options.run.id, ".wandb"),
                formats::WandbRun{.id = options.run.id,
                                  .project = options.project,
                                  .name = options.display_name,
                                  .host = host_name(),
                                  .start_time = moment_at(0).time});
}

void WandbLogger::log_hyper_parameters(std::span<const HyperParameter> parameters) {
  file_->add_config(parameters);
}

void WandbLogger::log_scalars(const LogMoment& moment, std::span<const NamedValue> values) {
  begin_row(moment);
  for (const auto& [name, value] : values) {
    const auto same = std::ranges::find(numbers_, name, &Number::name);
    if (same != numbers_.end()) {
      same->value = value;
    } else {
      numbers_.push_back({std::string(name), value});
    }
    const auto known = summary_.find(name);
    if (known != summary_.end()) {
      known->second = value;
    } else {
      summary_.emplace(name, value);
    }
  }
}

void WandbLogger::log_histogram(const LogMoment& moment, std::string_view name,
                                const Histogram& histogram) {
  begin_row(moment);
  set_value(std::string(name), histogram_json(histogram));
}

void WandbLogger::log_image(const LogMoment& moment, std::string_view name,
                            const LoggedImage& image) {
  begin_row(moment);
  const std::string png = detail::encode_png(image.rgb, image.width, image.height);
  const std::string file = add_media("images", name, ".png", png);
  set_value(std::string(name),
            "{\"_type\":\"image-file\"," + file + ",\"width\":" + std::to_string(image.width) +
                ",\"height\":" + std::to_string(image.height) + ",\"format\":\"png\"}");
}

void WandbLogger::log_table(const LogMoment& moment, std::string_view name,
                            const LoggedTable& table) {
  begin_row(moment);
  const std::string file = add_media("table", name, ".table.json", table_file(name, table));
  std::string json =
      "{\"_type\":\"table-file\"," + file + ",\"ncols\":" + std::to_string(1 + table.width()) +
      ",\"nrows\":" + std::to_string(table.rows.size()) + ",\"log_mode\":\"IMMUTABLE\"}";
  tables_.insert_or_assign(std::string(name), json);
  set_value(std::string(name), std::move(json));
}

void WandbLogger::flush() { write_summary(); }

void WandbLogger::finish(bool success) {
  write_row();
  write_summary();
  file_->end_run(success ? 0 : 1, moment_at(0).time);
}

void WandbLogger::begin_row(const LogMoment& moment) {
  if (row_begun_ && moment.step != moment_.step) write_row();
  moment_ = moment;
  row_begun_ = true;
}

// Writes a media file of the row and returns its value's JSON. Numbers are not formatted with
// str(), which may group digits by the program's locale.
std::string WandbLogger::add_media(std::string_view kind, std::string_view name,
                                   std::string_view extension, std::string_view content) {
  const std::string sha256 = sha256_hex(content);
  std::string path = "media/";
  path.append(kind).append("/").append(media_name(name));
  path += '_' + std::to_string(moment_.step) + '_' + sha256.substr(0, 20);
  path += extension;
  const fs::path file = folder_ / "files" / path;
  make_folder(file.parent_path());
  write_file_atomically(file, content);
  file_->add_file(path);
  return "\"path\":" + formats::json_string(path) + ",\"sha256\":\"" + sha256 +
         "\",\"size\":" + std::to_string(content.size());
}

void WandbLogger::set_value(std::string name, std::string json) {
  const auto same = std::ranges::find(values_, name, &formats::WandbValue::name);
  if (same != values_.end()) {
    same->json = std::move(json);
  } else {
    values_.push_back({std::move(name), std::move(json)});
  }
}

void WandbLogger::write_row() {
  if (!row_begun_) return;
  row_.clear();
  for (const Number& number : numbers_) row_.push_back({number.name, number.value});
  file_->add_history(moment_, row_, values_);
  numbers_.clear();
  values_.clear();
  row_begun_ = false;
}

void WandbLogger::write_summary() {
  if (summary_.empty() && tables_.empty()) return;
  std::vector<NamedValue> numbers;
  for (const auto& [name, value] : summary_) numbers.push_back({name, value});
  std::vector<formats::WandbValue> values;
  for (const auto& [name, json] : tables_) values.push_back({name, json});
  file_->add_summary(numbers, values);
}

}  // namespace lockstep::report
