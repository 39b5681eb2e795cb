// The predicted duration of an all-reduce, by algorithm.
//
// A message of m bytes takes L(m) (MessageCost), and adding a byte takes gamma. A rank can send to
// one rank and receive from one rank at the same time. All ranks begin together. n is the size of a
// rank's tensor, p the number of ranks, r the number of ranks per host. With one rank the cost is
// 0.
#pragma once

#include <string>
#include <vector>

#include <lockstep/simulate/network.h>

namespace lockstep::simulate {

/// The number of ranks, and the number of ranks that share a host and its link to other hosts.
struct RankPlaces {
  int ranks = 1;
  int ranks_per_host = 1;

  int hosts() const { return (ranks + ranks_per_host - 1) / ranks_per_host; }
};

/// Reduce-scatter and all-gather around a ring, ordered by host, so that one message at a time
/// crosses a host's link: 2 (p - 1) L(n / p) + gamma n (p - 1) / p, where L is that of the slower
/// link. No algorithm sends fewer bytes (P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce
/// algorithms for clusters of workstations", JPDC 69, 2009).
double ring_seconds(double bytes, const RankPlaces& places, const Network& network);

/// Reduce-scatter by halving and all-gather by doubling distances, near ranks first: 2 sum over k =
/// 1 ... log2 p of L(n / 2^k), + gamma n (p - 1) / p. If p is not a power of two, the surplus s
/// ranks are folded in before and unfolded after: of the first s pairs of neighbours, the even rank
/// sends its tensor to the odd rank, which takes part for both (R. Thakur, R. Rabenseifner, W.
/// Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19, 2005). Each
/// round lasts as long as its slowest link; the messages of a round that leave the same host share
/// its link.
double halving_doubling_seconds(double bytes, const RankPlaces& places, const Network& network);

/// Two binary trees, each of which reduces and broadcasts half of the tensor, in the fastest number
/// of pieces. A rank is a leaf of one of the trees (P. Sanders, J. Speck, J. L. Träff, "Two-tree
/// algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35, 2009). With
/// k pieces there are 2 (ceil(log2 p) + k - 1) rounds, in which a rank receives two messages of n /
/// (2k). One rank of each host is in the trees between hosts; the other ranks pass their tensors to
/// it along a chain, piece by piece.
double tree_seconds(double bytes, const RankPlaces& places, const Network& network);

/// A reduce-scatter within each host, an all-reduce of the whole tensor between hosts (each rank
/// handles its part over the host's link), and an all-gather within each host (P. Goyal et al.,
/// "Accurate, large minibatch SGD: training ImageNet in 1 hour", arXiv 1706.02677, 2017, section
/// 4). Between hosts, the faster of ring and halving-doubling is used. With one rank per host, only
/// the part between hosts remains.
double hierarchical_seconds(double bytes, const RankPlaces& places, const Network& network);

/// The chosen algorithm and its cost.
struct AllReduceCost {
  std::string
      algorithm{};  ///< "ring", "halving-doubling", "tree", "hierarchical", "measured", "none"
  double seconds = 0;
};

/// "auto", and the names of the functions above.
const std::vector<std::string>& all_reduce_names();

/// The cost of `algorithm`. "auto" takes a measurement with the same number of ranks if there is
/// one, otherwise the algorithm that costs least by this model; NCCL chooses by a model of its own
/// in the same way.
AllReduceCost all_reduce_cost(const std::string& algorithm, double bytes, const RankPlaces& places,
                              const Network& network);

}  // namespace lockstep::simulate
