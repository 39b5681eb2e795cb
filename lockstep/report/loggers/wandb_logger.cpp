#include <lockstep/report/loggers/wandb_logger.h>

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/png.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  LOCKSTEP_CHECK(
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) == 1,
      "OpenSSL cannot compute SHA-256");
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

// The part of a media file's path that comes from the name of what was logged. A slash in it makes
// a folder, as with wandb's own client; whatever else could lead elsewhere is replaced.
std::string media_name(std::string_view name) {
  std::string text(name);
  for (char& letter : text) {
    const bool is_kept =
        is_ascii_alphanumeric(letter) || letter == '/' || letter == '_' || letter == '-';
    if (!is_kept) letter = '_';
  }
  const std::size_t begin = text.find_first_not_of('/');
  return begin == std::string::npos ? "image" : text.substr(begin);
}

std::string histogram_json(const Histogram& histogram) {
  const auto list = [](const std::vector<double>& numbers) {
    std::string text = "[";
    for (const double number : numbers) {
      if (text.size() > 1) text += ',';
      append_number(text, number, kJsonNumberWords);
    }
    return text + ']';
  };
  return "{\"_type\":\"histogram\",\"values\":" + list(histogram.counts) +
         ",\"bins\":" + list(histogram.edges) + "}";
}

}  // namespace

WandbLogger::WandbLogger(const WandbLoggerOptions& options)
    : folder_(options.directory / "wandb" /
              str("offline-run-", options.run.date_time, '-', options.run.id)) {
  make_folder(folder_ / "files");
  file_.emplace(folder_ / str("run-", options.run.id, ".wandb"),
                WandbRun{.id = options.run.id,
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
  const std::string png = encode_png(image.rgb, image.width, image.height);
  const std::string sha256 = sha256_hex(png);
  const std::string path =
      "media/images/" + media_name(name) + '_' + std::to_string(moment.step) + '_' +
      sha256.substr(0, 20) + ".png";
  const fs::path file = folder_ / "files" / path;
  make_folder(file.parent_path());
  write_file_atomically(file, png);
  file_->add_file(path);
  // Not by str(), which groups digits where the program's locale does.
  set_value(std::string(name), "{\"_type\":\"image-file\",\"path\":" + json_string(path) +
                                   ",\"sha256\":\"" + sha256 +
                                   "\",\"size\":" + std::to_string(png.size()) +
                                   ",\"width\":" + std::to_string(image.width) +
                                   ",\"height\":" + std::to_string(image.height) +
                                   ",\"format\":\"png\"}");
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

void WandbLogger::set_value(std::string name, std::string json) {
  const auto same = std::ranges::find(values_, name, &WandbValue::name);
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
  if (summary_.empty()) return;
  std::vector<NamedValue> values;
  for (const auto& [name, value] : summary_) values.push_back({name, value});
  file_->add_summary(values);
}

}  // namespace lockstep
