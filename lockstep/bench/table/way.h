// What a row of `lockstep bench table` measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::bench {

/// A PyTorch program that is measured for comparison.
struct TablePeer {
  std::string strategy{};  ///< by PyTorch's definition: "single", "dp", "ddp"
  std::string loader{};    ///< "dataloader" or "dali"
  int workers = 0;         ///< workers of each process's DataLoader
};

/// The configuration that one row measures.
struct TableWay {
  std::string strategy{};
  std::string loader{};
  bool fused_kernels = true;
  /// Ranks of the strategy. Strategy dp has this number of replicas in one process instead, and
  /// single is one process with as many threads as that many ranks would have.
  std::int64_t ranks = 1;
  std::int64_t batch_per_rank = 0;
  std::int64_t threads_per_rank = 1;
  std::optional<TablePeer> peer{};

  std::int64_t global_batch() const { return batch_per_rank * ranks; }
};

/// "ddp, native, 2 ranks, batch per rank 64", for progress and errors.
std::string name_of(const TableWay& way);

}  // namespace lockstep::bench
