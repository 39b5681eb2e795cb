#include <lockstep/bench/table/way.h>

#include <lockstep/core/strings.h>

namespace lockstep::bench {
namespace {

std::string loader_of(const TablePeer& peer) {
  if (peer.workers == 0) return peer.loader;
  return str(peer.loader, " with ", amount_of(peer.workers, "worker"));
}

}  // namespace

std::string name_of(const TableWay& way) {
  std::string name = way.peer ? str("PyTorch's ", way.peer->strategy, ", ", loader_of(*way.peer))
                              : str(way.strategy, ", ", way.loader);
  if (!way.fused_kernels) name += ", without fused kernels";
  return str(name, ", ", amount_of(way.ranks, "rank"), ", batch per rank ", way.batch_per_rank);
}

}  // namespace lockstep::bench
