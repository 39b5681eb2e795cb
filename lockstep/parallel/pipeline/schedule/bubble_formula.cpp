#include <lockstep/parallel/pipeline/schedule/bubble_formula.h>

#include <utility>

#include <lockstep/core/options.h>

namespace lockstep::pipeline {
namespace {

// `idle` and `work` are per worker, in any unit.
BubbleFormula formula_of(std::string text, double idle, double work) {
  return {std::move(text), idle / (work + idle)};
}

}  // namespace

std::optional<BubbleFormula> bubble_formula(std::string_view schedule, int workers,
                                            int micro_batches, int stages_per_worker) {
  const OptionCheck check("bubble_formula");
  check.at_least("workers", workers, 1);
  check.at_least("micro_batches", micro_batches, 1);
  check.at_least("stages_per_worker", stages_per_worker, 1);
  const double p = workers, m = micro_batches, v = stages_per_worker;
  // A worker is idle until the first micro-batch reaches it, and after the last one leaves it. With
  // a whole backward this takes p - 1 times a stage's work for a micro-batch, which is 3; with a
  // split one the gradients of weights fill two thirds of it.
  if (schedule == "gpipe" || schedule == "1f1b") {
    return formula_of("(p - 1) / (m + p - 1)", 3 * (p - 1), 3 * m);
  }
  if (schedule == "interleaved" && micro_batches % workers == 0) {
    return formula_of("(p - 1) / (v m + p - 1)", 3 * (p - 1), 3 * v * m);
  }
  if (schedule == "zb-h1" && micro_batches >= workers) {
    return formula_of("(p - 1) / (3 m + p - 1)", p - 1, 3 * m);
  }
  if (schedule == "zbv" && micro_batches >= 2 * workers - 1) {
    return formula_of("(p - 1) / (6 m + p - 1)", p - 1, 6 * m);
  }
  return std::nullopt;
}

}  // namespace lockstep::pipeline
