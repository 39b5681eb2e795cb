// Recursive halving-doubling (Rabenseifner): in step k of the reduce-scatter a rank exchanges with
// the one whose number differs in bit k: each gives away half of what it still works on and adds
// the other half. After log2 P steps each has the sum of one part of P; the same steps backwards
// (all-gather) double what each has until it is everything.
//
// P is the largest power of two up to N. The first 2 (N-P) ranks fold: the even ones give all they
// have to their odd neighbours, stand by, and get the sum at the end.
//
// Costs, for N ranks, n bytes, α per message, β per byte sent, γ per byte added: 2 log2 P steps, in
// which
//
//   every rank  sends and receives 2 (P-1)/P n bytes;
//   time        2 log2 P α + 2 (P-1)/P nβ + (P-1)/P nγ, and, unless N = P, two steps and
//               2 (α + nβ) + nγ more.
//
// As few bytes as the ring in far fewer steps. Where N is no power of two the ring sends less.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", 2005.
#pragma once

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep {

CommSchedule halving_doubling_schedule(const ScheduleRequest& request);

}  // namespace lockstep
