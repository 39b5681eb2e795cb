// Numbers and reports formatted as text for people; used throughout lockstep/report.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <lockstep/train/task/listener.h>

namespace lockstep::report {

std::string fixed_text(double value, int digits);  ///< 0.12345, 3 -> "0.123"
std::string significant_text(double value);        ///< 1234.5 -> "1230", 0.012345 -> "0.0123"
std::string count_text(double value);              ///< 25974.3 -> "25,974"
std::string seconds_text(double seconds);          ///< "2.31 s", "23.1 s", "3:25 min", "2:03:25 h"
std::string clock_text(double seconds);            ///< "0:03", "3:25", "2:03:25"
std::string bytes_text(double bytes);              ///< decimal units: "9.9 MB"
std::string percent_text(double fraction);         ///< 0.98415 -> "98.42%"

/// 25974, "image" -> "25,974 images"; 1, "image" -> "1 image"
std::string count_of(std::int64_t count, const std::string& noun);

/// Cells side by side, two spaces apart, each padded to its width; a negative width aligns a cell
/// to the left. There must be a width for each cell.
std::string padded_cells(std::span<const std::string> cells, std::span<const int> widths);

/// "mnist: ddp over shm, 2 processes x 1 thread, global batch 128 x 2 = 256, learning rate 0.05,
/// float32, 21,840 parameters, MNIST"; "128 x 2" if each step accumulates two batches, and
/// "bf16 (no fused kernels)" if the precision disables these
std::string run_line(const RunInfo& info);

/// run_line(); then, for a resumed run, a line such as "resumes from run/checkpoints/step-00000008
/// in epoch 1, after step 8 of 12"; then, for a pipeline, a line such as "cut after conv1, conv2;
/// stages 0, 1 compute their backward as a whole". Each line ends with a line feed.
std::string run_heading(const RunInfo& info);

/// "98.42%" for a fraction, "31.2500" or "1.25e-06" for a number.
std::string metric_text(const MetricValue& value);

/// The values of an evaluation: "98.42% (loss 0.0512)" if it has an accuracy, followed by other
/// values, as in "98.42% (loss 0.0512, top5_accuracy 99.91%)"; otherwise "loss 0.0512, psnr
/// 31.2500". The word "nothing" if the task added no values.
std::string evaluation_text(const Evaluation& evaluation);

/// "epoch  3/10", padded so that all epochs of a run align.
std::string epoch_name(std::int64_t epoch, std::int64_t max_epochs);

/// "epoch  3/10  loss 0.1234  validation 98.42% (loss 0.0512)  25,974 img/s  2.31 s"
std::string epoch_line(const EpochReport& report, std::int64_t max_epochs);

/// "epoch  3/10  step 40 of 469  validation 98.42% (loss 0.0512)"
std::string evaluation_line(const EvaluationReport& report, std::int64_t max_epochs);

/// "validation accuracy 98.42% in epoch 3"
std::string best_text(const BestEvaluation& best);

/// "validation accuracy", or "training loss" for "train_loss"
std::string watched_text(const std::string& name);

}  // namespace lockstep::report
