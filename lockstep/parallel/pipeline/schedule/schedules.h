// The well-known schedules, as tables of compute actions only (with_messages() adds the messages).
//
// In every schedule, each stage runs the forward passes in the order of the micro-batches, and the
// backward passes in the same order. All schedules, and one process that accumulates the same
// micro-batches, therefore give the same bits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep::pipeline {

/// GPipe (Huang et al., arXiv 1811.06965), also "fill-drain": all forwards, then all backwards. A
/// worker holds the activations of all micro-batches.
LOCKSTEP_API Table gpipe(int workers, int micro_batches);

/// One forward, one backward (PipeDream-flush, Narayanan et al., arXiv 2006.09503): the bubble of
/// GPipe, but worker w of p holds the activations of at most p - w micro-batches.
LOCKSTEP_API Table one_forward_one_backward(int workers, int micro_batches);

/// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473): worker w of p holds the stages w, p + w,
/// 2p + w and so on. With v stages per worker the bubble is v times smaller, and there are v times
/// as many messages.
LOCKSTEP_API Table interleaved(int workers, int stages_per_worker, int micro_batches);

/// ZB-H1 (Qi et al., arXiv 2401.10241): 1F1B with split backwards. The gradients of weights, for
/// which no worker waits, fill the end of the former bubble; each worker holds the activations of
/// at most p micro-batches.
LOCKSTEP_API Table zero_bubble_h1(int workers, int micro_batches);

/// ZB-V (the same paper): worker w of p holds the stages w and 2p - 1 - w, so that the first and
/// last stages share a worker. The bubble is that of ZB-H1 with stages of half the size; each
/// worker holds the activations of at most 2p of these half-size stages. With fewer than 2p - 1
/// micro-batches it is the shorter of two tables: the beginning of the paper's, which PyTorch has,
/// and one in which each worker does what is ready.
LOCKSTEP_API Table zero_bubble_v(int workers, int micro_batches);

/// The names of all schedules, in the order of lockstep::Schedule.
LOCKSTEP_API const std::vector<std::string>& schedule_names();

/// Makes a schedule by its name, one of schedule_names(). `stages_per_worker` is used by
/// interleaved only; the other schedules have a fixed number. Throws ConfigError for another name,
/// and for numbers below 1.
LOCKSTEP_API Table schedule_of(std::string_view name, int workers, int micro_batches,
                               int stages_per_worker = 2);

}  // namespace lockstep::pipeline
