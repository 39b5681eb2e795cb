#include <lockstep/simulate/error_share.h>

namespace lockstep::simulate {

double error_share(Wire wire, bool has_small_buckets) {
  if (wire == Wire::kSharedMemory) return 0.15;  // from 47 predictions
  if (has_small_buckets) return 0.26;            // from 9
  return wire == Wire::kOneHost ? 0.15 : 0.12;   // from 44 and 62
}

SecondsInterval interval_around(double seconds, double share, double late_seconds) {
  return {.low = seconds / (1 + share), .high = seconds / (1 - share) + late_seconds};
}

}  // namespace lockstep::simulate
