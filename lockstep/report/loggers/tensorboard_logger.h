// Scalars, histograms, images, tables and hyper-parameters for TensorBoard.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include <lockstep/formats/tensorboard_events.h>
#include <lockstep/report/loggers/logger.h>

namespace lockstep::report {

/// Writes one event file into a folder: `tensorboard --logdir FOLDER`, or a parent folder to
/// compare several runs. Scalars are stored as floats. The tab HPARAMS shows the run with its
/// hyper-parameters and the last logged values; the tab TEXT shows tables.
class TensorBoardLogger final : public Logger {
 public:
  /// The folder must exist. `run` is the run's name in the tab HPARAMS.
  TensorBoardLogger(const std::filesystem::path& folder, std::string run);

  std::string place() const override { return file_.path().parent_path().string(); }
  void log_hyper_parameters(std::span<const HyperParameter> parameters) override;
  void log_scalars(const LogMoment& moment, std::span<const NamedValue> values) override;
  void log_histogram(const LogMoment& moment, std::string_view name,
                     const Histogram& histogram) override;
  bool takes_images() const override { return true; }
  void log_image(const LogMoment& moment, std::string_view name, const LoggedImage& image) override;
  void log_table(const LogMoment& moment, std::string_view name, const LoggedTable& table) override;
  void finish(bool success) override;

 private:
  std::string run_;
  formats::TensorBoardFile file_;
  bool in_session_ = false;
};

}  // namespace lockstep::report
