// The α–β–γ model, which predicts the time of a schedule (Hockney 1994; Thakur, Rabenseifner and
// Gropp 2005).
#pragma once

#include <vector>

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep::comm {

struct CostModel {
  double alpha_seconds = 0;           ///< per message of any length
  double beta_seconds_per_byte = 0;   ///< per byte transferred between two ranks
  double gamma_seconds_per_byte = 0;  ///< per byte added to another
};

/// The time in seconds at which each rank finishes if all begin together. A rank sends to one peer
/// and receives from one peer at a time, and can do both at once. A transfer begins when both sides
/// have reached its step and are free, and takes α + bytes β. After the transfers of a step,
/// combining takes γ per byte. Every rank is assumed to have its own processor: with more ranks
/// than processors, the real time is longer.
std::vector<double> predict_seconds(const std::vector<CommSchedule>& schedules,
                                    std::size_t element_bytes, const CostModel& model);

}  // namespace lockstep::comm
