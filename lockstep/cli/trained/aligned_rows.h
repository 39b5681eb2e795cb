// A table as text, whose columns are as wide as their cells.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include <lockstep/report/text.h>

namespace lockstep::cli {

/// Prints `rows`, which must have the same number of cells. Columns whose letter in `alignment` is
/// 'r' are aligned to the right, the others ('l') to the left.
inline void print_aligned(std::ostream& out, const std::vector<std::vector<std::string>>& rows,
                          const std::string& alignment) {
  std::vector<int> widths(alignment.size());
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], static_cast<int>(row.at(i).size()));
    }
  }
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (alignment[i] == 'l') widths[i] = i + 1 == widths.size() ? 0 : -widths[i];
  }
  for (const std::vector<std::string>& row : rows) {
    out << report::padded_cells(row, widths) << '\n';
  }
}

}  // namespace lockstep::cli
