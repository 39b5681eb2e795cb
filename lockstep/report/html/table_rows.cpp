#include <lockstep/report/html/table_rows.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>

namespace lockstep::html {
namespace {

using RowJson = nlohmann::json;

// Rows with PyTorch's programs or without Lockstep's kernels are a different workload.
std::string work_of(const RowJson& row) {
  const std::string work =
      work_name(row.at("recipe").get<std::string>(), row.at("loader").get<std::string>(),
                row.at("threads_per_rank").get<int>());
  if (row.at("peer").is_string()) return str(work, ", ", row.at("peer").get<std::string>());
  return work + (row.value("fused_kernels", true) ? "" : ", LibTorch's kernels");
}

}  // namespace

std::string work_name(const std::string& recipe, const std::string& loader, int threads_per_rank) {
  return str(recipe, ", loader ", loader, ", ", amount_of(threads_per_rank, "thread"), " a rank");
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
