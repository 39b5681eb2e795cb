// JsonlLogger: logs all values that JSON can represent, one object per line, for
// pandas.read_json(path, lines=True).
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include <lockstep/core/append_file.h>
#include <lockstep/report/loggers/logger.h>

namespace lockstep::report {

/// Writes FOLDER/metrics.jsonl, a line for each call:
///   {"step":100,"time":1795545000.123,"train/loss":0.25,"learning_rate":0.1}
///   {"step":469,"time":1795545003.5,"weights":{"edges":[-1,0,1],"counts":[7,9]}}
///   {"step":469,"time":1795545003.5,"confusion":{"labels":["cat","dog"],"rows":[[7,1],[2,9]]}}
/// Numbers that are not finite become null. Hyper-parameters go to FOLDER/hyper_parameters.json.
/// Images are not written.
class JsonlLogger final : public Logger {
 public:
  /// The folder must exist.
  explicit JsonlLogger(const std::filesystem::path& folder);

  std::string place() const override { return file_.path().string(); }
  void log_hyper_parameters(std::span<const HyperParameter> parameters) override;
  void log_scalars(const LogMoment& moment, std::span<const NamedValue> values) override;
  void log_histogram(const LogMoment& moment, std::string_view name,
                     const Histogram& histogram) override;
  void log_table(const LogMoment& moment, std::string_view name, const LoggedTable& table) override;

 private:
  void begin_line(const LogMoment& moment);
  void add_key(std::string_view name);
  void end_line();

  std::filesystem::path folder_;
  AppendFile file_;
  std::string line_;  // line of the current call; a member so that it keeps its memory
};

}  // namespace lockstep::report
