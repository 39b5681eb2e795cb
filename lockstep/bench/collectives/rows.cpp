#include <lockstep/bench/collectives/rows.h>

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include <lockstep/bench/sizes.h>
#include <lockstep/core/measuring/quantile.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/text.h>

namespace lockstep::bench {
namespace {

constexpr std::size_t kCommColumns = 9;
constexpr std::array<int, kCommColumns> kCommWidths = {-14, -16, 9, -9, 9,
                                                       9,   9,   9, 9};  // negative: to the left

std::string line_of(const std::array<std::string, kCommColumns>& cells) {
  return report::padded_cells(cells, kCommWidths);
}

}  // namespace

BenchCommRow summarize(BenchCommRow row, const std::vector<double>& microseconds) {
  const auto [least, most] = std::minmax_element(microseconds.begin(), microseconds.end());
  row.min_us = *least;
  row.max_us = *most;
  row.median_us = median(microseconds);
  return row;
}

std::string to_json(const std::vector<BenchCommRow>& rows) {
  auto json = nlohmann::ordered_json::array();
  for (const BenchCommRow& row : rows) {
    json.push_back({{"collective", bench_call_name(row.collective)},
                    {"algorithm", row.algorithm},
                    {"backend", row.backend},
                    {"ranks", row.ranks},
                    {"hosts", row.hosts},
                    {"processors", row.processors},
                    {"dtype", row.dtype},
                    {"bytes", row.bytes},
                    {"in_place", is_in_place(row.collective)},
                    {"symmetric", row.symmetric},
                    {"median_us", row.median_us},
                    {"min_us", row.min_us},
                    {"max_us", row.max_us},
                    {"algbw_gbps", row.algbw_gbps()},
                    {"busbw_gbps", row.busbw_gbps()}});
    if (!row.beside_us) continue;
    json.back()["beside_us"] = *row.beside_us;
    json.back()["taken_us"] = row.taken_us.value_or(0);
  }
  return json.dump(2) + "\n";
}

std::string bench_comm_heading() {
  return line_of({"collective", "algorithm", "size", "memory", "median us", "min us", "max us",
                  "alg GB/s", "bus GB/s"});
}

std::string table_line(const BenchCommRow& row) {
  const std::string beside =
      row.beside_us ? str("  beside computing ", short_number(*row.beside_us),
                          " us, of which it takes ", short_number(row.taken_us.value_or(0)))
                    : "";
  return line_of({bench_call_name(row.collective), row.algorithm,
                  row.bytes == 0 ? "-" : binary_bytes_text(static_cast<double>(row.bytes)),
                  row.symmetric ? "symmetric" : "private", short_number(row.median_us),
                  short_number(row.min_us), short_number(row.max_us),
                  short_number(row.algbw_gbps()), short_number(row.busbw_gbps())}) +
         beside;
}

}  // namespace lockstep::bench
