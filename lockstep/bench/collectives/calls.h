// A collective with its buffers, for repeated calls.
#pragma once

#include <cstdint>
#include <functional>

#include <torch/types.h>

#include <lockstep/bench/collectives/collective.h>
#include <lockstep/comm/call/data_type.h>
#include <lockstep/comm/group/process_group.h>

namespace lockstep::bench {

/// LibTorch's name for a type other than kByte.
torch::ScalarType scalar_type_of(detail::DataType type);

struct BenchCase {
  CallKind collective = CallKind::kAllReduce;
  Algorithm algorithm = Algorithm::kAuto;  ///< for all_reduce
  torch::ScalarType dtype = torch::kFloat32;
  std::int64_t bytes = 0;  ///< requested size of the larger buffer
  bool symmetric = false;
};

/// Construction is collective if the buffers are symmetric.
class BenchCall {
 public:
  BenchCall(ProcessGroup group, const BenchCase& which);

  /// Size of the larger buffer: a whole number of elements, equal for each rank.
  std::int64_t bytes() const {
    return elements_ * static_cast<std::int64_t>(c10::elementSize(dtype_));
  }

  /// Fills this rank's input with zeros or ones, depending on `call` and the rank. The previous
  /// call must have ended.
  void write(int call);
  void run() { run_(); }
  /// Starts the call that run() makes, without waiting for it. Returns null if the collective
  /// cannot be started this way.
  WorkPtr start();
  /// Throws InternalError, which names the rank, if the result of that call is wrong.
  void check(int call) const;

  /// Upper bound of the memory that all ranks of a host need together.
  static double memory_needed(const BenchCase& which, int ranks);

 private:
  torch::Tensor make(std::int64_t elements, bool symmetric);
  void make_buffers(bool symmetric);
  std::function<void()> make_call(Algorithm algorithm);
  int expected(int call) const;

  ProcessGroup group_;
  const CallKind collective_;
  Algorithm algorithm_ = Algorithm::kAuto;
  const torch::ScalarType dtype_;
  std::int64_t elements_ = 0;
  torch::Tensor given_;   // undefined if this rank has no input
  torch::Tensor result_;  // undefined if this rank has no output
  std::function<void()> run_;
};

}  // namespace lockstep::bench
