#include <lockstep/report/html/table_rows.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>

namespace lockstep::html {
namespace {

using RowJson = nlohmann::json;

// Rows of earlier versions have only their batch per rank.
std::int64_t global_batch_of(const RowJson& row) {
  return row.value("global_batch",
                   row.value("batch_per_rank", std::int64_t{0}) * row.at("ranks").get<int>());
}

constexpr const char* kPlainKernels = "LibTorch's kernels";

// Rows with PyTorch's programs or without Lockstep's kernels are a different workload.
std::string work_of(const RowJson& row) {
  Workload work{.recipe = row.at("recipe").get<std::string>(),
                .loader = row.at("loader").get<std::string>(),
                .threads_per_rank = row.at("threads_per_rank").get<int>(),
                .device = row.value("device", ""),
                .precision = row.value("precision", "")};
  if (row.at("peer").is_string()) {
    work.details.push_back(row.at("peer").get<std::string>());
  } else if (!row.value("fused_kernels", true)) {
    work.details.emplace_back(kPlainKernels);
  }
  const auto batches = row.value("accumulate_grad_batches", std::int64_t{1});
  if (batches > 1) work.details.push_back(batches_of_step(batches));
  return work_name(work);
}

}  // namespace

std::string work_name(const Workload& work) {
  std::string name = str(work.recipe, ", loader ", work.loader, ", ",
                         amount_of(work.threads_per_rank, "thread"), " a rank");
  if (!work.device.empty()) name += ", " + work.device;
  if (!work.precision.empty()) name += ", precision " + work.precision;
  for (const std::string& detail : work.details) name += ", " + detail;
  return name;
}

std::string batches_of_step(std::int64_t batches) {
  return amount_of(batches, "batch") + " a step";
}

std::vector<RankRate> read_table_rates(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw DataError(str("cannot read ", file.string()));
  try {
    std::vector<RankRate> rates;
    for (const RowJson& row : RowJson::parse(stream)) {
      if (!row.at("images_per_second").is_number()) continue;
      rates.push_back({.strategy = row.at("strategy").get<std::string>(),
                       .work = work_of(row),
                       .source = file.filename().string(),
                       .ranks = row.at("ranks").get<int>(),
                       .global_batch = global_batch_of(row),
                       .images_per_second = row.at("images_per_second").get<double>()});
    }
    return rates;
  } catch (const RowJson::exception& error) {
    throw DataError(json_refusal(file.string(),
                                 "is neither a record of `lockstep train --json` nor rows of "
                                 "`lockstep bench table --json`",
                                 error));
  }
}

}  // namespace lockstep::html
