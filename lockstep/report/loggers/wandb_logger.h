// An offline run of Weights & Biases, for a later upload with `wandb sync`.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/formats/wandb_file.h>
#include <lockstep/report/loggers/logger.h>
#include <lockstep/report/loggers/run_folder.h>

namespace lockstep::report {

struct WandbLoggerOptions {
  std::filesystem::path directory{};  ///< gets the folder wandb/, with a subfolder per run
  std::string project = "lockstep";
  std::string display_name{};  ///< the run's name on the project's page
  RunName run{};               ///< its id is the run's id on the server
};

/// Writes DIRECTORY/wandb/offline-run-DATE_TIME-ID/run-ID.wandb, with images and tables in files/
/// next to it. Uses no network: `wandb sync DIRECTORY/wandb/offline-run-*` uploads the run.
///
/// The server expects one row per step. The row of the current step therefore collects values until
/// the next step or the end of the run; if the process is killed before that, the row is lost.
/// flush() and finish() write the summary, which has the last number and the last table of each
/// name.
class WandbLogger final : public Logger {
 public:
  /// Throws DataError if the run's folder cannot be created.
  explicit WandbLogger(const WandbLoggerOptions& options);

  std::string place() const override { return folder_.string(); }
  void log_hyper_parameters(std::span<const HyperParameter> parameters) override;
  void log_scalars(const LogMoment& moment, std::span<const NamedValue> values) override;
  void log_histogram(const LogMoment& moment, std::string_view name,
                     const Histogram& histogram) override;
  bool takes_images() const override { return true; }
  void log_image(const LogMoment& moment, std::string_view name, const LoggedImage& image) override;
  void log_table(const LogMoment& moment, std::string_view name, const LoggedTable& table) override;
  void flush() override;
  void finish(bool success) override;

 private:
  struct Number {
    std::string name{};
    double value = 0;
  };

  void begin_row(const LogMoment& moment);
  std::string add_media(std::string_view kind, std::string_view name, std::string_view extension,
                        std::string_view content);
  void set_value(std::string name, std::string json);
  void write_row();
  void write_summary();

  std::filesystem::path folder_;
  std::optional<formats::WandbFile> file_;
  LogMoment moment_{};
  bool row_begun_ = false;
  std::vector<Number> numbers_;              // numbers of the row, in the order of logging
  std::vector<formats::WandbValue> values_;  // the row's histograms, images and tables
  std::vector<NamedValue> row_;              // numbers_ in the file's form; kept for its memory
  std::map<std::string, double, std::less<>> summary_;
  std::map<std::string, std::string> tables_;  // tables of the summary, as JSON
};

}  // namespace lockstep::report
