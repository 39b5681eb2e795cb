// The α–β–γ model: what a schedule should cost (Hockney 1994; Thakur, Rabenseifner and Gropp 2005).
#pragma once

#include <vector>

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep {

struct CostModel {
  double alpha_seconds = 0;           ///< per message, however short
  double beta_seconds_per_byte = 0;   ///< per byte that crosses between two ranks
  double gamma_seconds_per_byte = 0;  ///< per byte that is added to another
};

/// When each rank is done, in seconds after all began together. A rank sends to one other and
/// receives from one other at a time, both at once; a transfer begins when both sides have come to
/// its step and are free, and takes α + bytes β. After the transfers of a step, γ for every byte to
/// combine. Every rank has a processor of its own: with more ranks than processors, reality is
/// slower.
std::vector<double> predict_seconds(const std::vector<CommSchedule>& schedules,
                                    std::size_t element_bytes, const CostModel& model);

}  // namespace lockstep
