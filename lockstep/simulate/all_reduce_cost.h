// What an all-reduce takes, by algorithm.
//
// A message of m bytes takes L(m) (MessageCost), each added byte gamma. A rank sends to one and
// receives from one other at a time, both at once. All ranks begin together. n is the size of a
// rank's tensor, p the number of ranks, r those of a host. With one rank nothing is to do.
#pragma once

#include <string>
#include <vector>

#include <lockstep/simulate/network.h>

namespace lockstep {

/// How many ranks there are, and how many of them share a host and its link to others.
struct RankPlaces {
  int ranks = 1;
  int ranks_per_host = 1;

  int hosts() const { return (ranks + ranks_per_host - 1) / ranks_per_host; }
};

/// Reduce-scatter and all-gather around a ring, in the order of hosts, so that one message crosses
/// a host's link at a time: 2 (p - 1) L(n / p) + gamma n (p - 1) / p, where L is the slower link's.
/// No algorithm sends fewer bytes (P. Patarasu and X. Yuan, "Bandwidth optimal all-reduce
/// algorithms for clusters of workstations", JPDC 69, 2009).
double ring_seconds(double bytes, const RankPlaces& places, const Network& network);

/// Reduce-scatter by halving and all-gather by doubling distances, near ranks first: 2 sum over k =
/// 1 ... log2 p of L(n / 2^k), + gamma n (p - 1) / p. Where ranks of other hosts are met, the r
/// ranks of a host share its link. Numbers that are no power of two fold the rest into it before
/// and unfold it behind it (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective
/// communication operations in MPICH", IJHPCA 19, 2005).
double halving_doubling_seconds(double bytes, const RankPlaces& places, const Network& network);

/// Two binary trees, in each of which half of the tensor goes up and comes down again, in the
/// number of pieces that is fastest; a rank is a leaf of one of them (P. Sanders, J. Speck, J. L.
/// Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
/// Computing 35, 2009). With k pieces 2 (ceil(log2 p) + k - 1) rounds, in which a rank receives two
/// messages of n / (2k). Each host has one rank in the trees between hosts; its others hand their
/// tensors to it along a chain, piece by piece.
double tree_seconds(double bytes, const RankPlaces& places, const Network& network);

/// Within a host a reduce-scatter, between hosts an all-reduce of the whole tensor over the hosts'
/// links, each rank with its part, within a host an all-gather (P. Goyal et al., "Accurate, large
/// minibatch SGD: training ImageNet in 1 hour", arXiv 1706.02677, 2017, section 4). Between hosts
/// the faster of ring and halving-doubling. With one rank on a host nothing but that is left.
double hierarchical_seconds(double bytes, const RankPlaces& places, const Network& network);

/// One that was chosen, for a size.
struct AllReduceCost {
  std::string
      algorithm{};  ///< "ring", "halving-doubling", "tree", "hierarchical", "measured", "none"
  double seconds = 0;
};

/// "auto", and the names of the functions above.
const std::vector<std::string>& all_reduce_names();

/// The cost by `algorithm`; with "auto" the cheapest one, as NCCL chooses by its own model, or what
/// was measured on as many ranks.
AllReduceCost all_reduce_cost(const std::string& algorithm, double bytes, const RankPlaces& places,
                              const Network& network);

}  // namespace lockstep
