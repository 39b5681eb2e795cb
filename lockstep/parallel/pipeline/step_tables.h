// The tables of one pipeline, for every batch size.
#pragma once

#include <map>
#include <utility>

#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep::pipeline {

/// Makes the tables for `stages` stages on `workers` workers on demand and keeps them. ConfigErrors
/// are those of make_table(). Not thread-safe.
class StepTables {
 public:
  StepTables(PipelineOptions options, int stages, int workers)
      : options_(std::move(options)), stages_(stages), workers_(workers) {}

  /// The actions of the workers in a training step, with messages. The reference stays valid.
  const Table& training(int micro_batches) { return of(micro_batches).training; }
  /// The actions of the workers in an evaluation.
  const Table& evaluation(int micro_batches) { return of(micro_batches).evaluation; }

 private:
  struct Tables {
    Table training;
    Table evaluation;
  };

  const Tables& of(int micro_batches) {
    const auto found = tables_.find(micro_batches);
    if (found != tables_.end()) return found->second;
    Table training = make_table(options_, stages_, workers_, micro_batches);
    Table evaluation = with_messages(forwards_of(training));
    return tables_.emplace(micro_batches, Tables{std::move(training), std::move(evaluation)})
        .first->second;
  }

  const PipelineOptions options_;
  const int stages_;
  const int workers_;
  std::map<int, Tables> tables_;  // by the number of micro-batches
};

}  // namespace lockstep::pipeline
