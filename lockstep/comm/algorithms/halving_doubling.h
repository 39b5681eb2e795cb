// Recursive halving-doubling (Rabenseifner). In step k of the reduce-scatter, a rank exchanges with
// the peer whose number differs in bit k: each sends half of the elements that it still works on
// and adds the other half. After log2 P steps each rank has the sum of one of P parts. The
// all-gather takes the same steps backwards: each step doubles the part that a rank has, until it
// has everything.
//
// P is the largest power of two up to N. The first 2 (N-P) ranks fold: each even rank sends all its
// elements to its odd neighbour, idles, and receives the sum at the end.
//
// Costs, for N ranks, n bytes, α per message, β per byte sent, γ per byte added: 2 log2 P steps, in
// which
//
//   every rank  sends and receives 2 (P-1)/P n bytes;
//   time        2 log2 P α + 2 (P-1)/P nβ + (P-1)/P nγ, and, unless N = P, two steps and
//               2 (α + nβ) + nγ more.
//
// Sends as few bytes as the ring in far fewer steps. If N is not a power of two, the ring sends
// fewer bytes.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", 2005.
#pragma once

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep::comm {

CommSchedule halving_doubling_schedule(const ScheduleRequest& request);

}  // namespace lockstep::comm
