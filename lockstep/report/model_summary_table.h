// A table of a run's model, printed at the beginning.
#pragma once

#include <ostream>
#include <string>

#include <lockstep/train/task/listener.h>
#include <lockstep/train/task/model_summary.h>

namespace lockstep::report {

/// A row for each module, with its class, its number of parameters and the shape of its output,
/// followed by the parameters and bytes of the whole model. "~" marks the shape of a module's last
/// operation (ModuleSummary::last_operation_shape), "-" stands for a module whose call was not
/// seen. Ends with a line feed.
///
///   name   type    parameters  output shape
///          Net          1,290  64 x 10
///   fc1    Linear         640  64 x 20
///   ...
std::string table_text(const ModelSummary& summary);

/// Prints table_text() when the run begins, if TrainerOptions::model_summary_depth asks for a
/// summary. The stream must outlive this object. Throws DataError if the stream fails.
class ModelSummaryTable final : public Listener {
 public:
  explicit ModelSummaryTable(std::ostream& out) : out_(out) {}
  void on_model_summary(const ModelSummary& summary) override;

 private:
  std::ostream& out_;
};

}  // namespace lockstep::report
