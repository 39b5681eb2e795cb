// A pipeline's schedule as data: what each worker does, in which order. Without LibTorch and
// without communication, so that a table can be checked (check.h) and timed on paper (replay.h).
//
// The model is cut into stages, 0 first; a worker (a device, a thread or a rank) holds one or more
// of them, and the batch goes through as micro-batches. What a worker does is written as PyTorch's
// torch.distributed.pipelining writes it, stage, kind, micro-batch: "2F0", "2B0", "1SEND_F3".
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::pipeline {

enum class Kind {
  kForward,          ///< F: a stage's forward
  kBackward,         ///< B: its whole backward, the gradients of inputs and weights
  kBackwardInput,    ///< I: only the gradients of its inputs, which the stage before waits for
  kBackwardWeight,   ///< W: the gradients of its weights, which nobody waits for
  kSendForward,      ///< SEND_F: its outputs, to the worker of the next stage
  kReceiveForward,   ///< RECV_F: its inputs, from the worker of the stage before
  kSendBackward,     ///< SEND_B: the gradients of its inputs, to the worker of the stage before
  kReceiveBackward,  ///< RECV_B: the gradients of its outputs, from the worker of the next stage
  kReduce,           ///< REDUCE_GRAD: its weights' gradients, over the replicas of the pipeline
};

constexpr bool is_message(Kind kind) {
  return kind == Kind::kSendForward || kind == Kind::kReceiveForward ||
         kind == Kind::kSendBackward || kind == Kind::kReceiveBackward;
}
/// What gives the gradients of a stage's inputs.
constexpr bool is_gradient(Kind kind) {
  return kind == Kind::kBackward || kind == Kind::kBackwardInput;
}
/// What gives the gradients of its weights.
constexpr bool is_weight_gradient(Kind kind) {
  return kind == Kind::kBackward || kind == Kind::kBackwardWeight;
}
/// What a stage computes: F, B, I and W.
constexpr bool is_compute(Kind kind) {
  return kind == Kind::kForward || is_gradient(kind) || is_weight_gradient(kind);
}

/// "F", "SEND_F", ...: a literal.
const char* kind_name(Kind kind);
/// "forward", "backward", "message" or "reduction", for traces: a literal.
const char* kind_category(Kind kind);

struct Action {
  Kind kind = Kind::kForward;
  int stage = 0;
  int micro_batch = 0;  ///< -1 for kReduce, which is for all of them
  friend auto operator<=>(const Action&, const Action&) = default;
};

std::string text(const Action& action);
/// ConfigError for anything else.
Action action_of(std::string_view text);

struct Table {
  std::string name{};
  int micro_batches = 0;
  std::vector<int> worker_of{};                ///< for each stage, the worker that holds it
  std::vector<std::vector<Action>> workers{};  ///< for each worker, its actions in turn

  int stages() const { return static_cast<int>(worker_of.size()); }
  friend bool operator==(const Table&, const Table&) = default;
};

/// A line for each worker, its actions between commas, as PyTorch reads and writes tables.
std::string csv(const Table& table);
/// The reverse: the stages are on the workers whose lines name them. Empty cells are skipped. An
/// empty line is a worker that does nothing; empty lines at the end are ignored. ConfigError for a
/// cell that is no action, and for a stage that stands in two lines.
Table table_of(std::string_view csv, std::string name);

/// The receive that takes what `send`, a kSendForward or kSendBackward, sends.
Action receive_of(const Action& send);

/// Returns `table` with the messages that its stages need: each worker sends as soon as it has
/// something, and receives just before it uses it, from each other worker in the order in which
/// that one sends. A send does not wait for its receive: with sends that do, workers could wait for
/// each other. Where neighbouring stages share a worker there is no message. LOCKSTEP_CHECK: there
/// are none yet.
Table with_messages(const Table& table);

/// Returns `table` with a reduction of each stage's gradients as soon as its last micro-batch is
/// through. Comes before with_messages(), so that no message waits for it (LOCKSTEP_CHECK).
Table with_reductions(const Table& table);

/// Whether the table has the messages between its workers already.
bool has_messages(const Table& table);
/// Whether the table has reductions already.
bool has_reductions(const Table& table);

/// The forwards of `table` alone, in their order, without messages: what an evaluation does.
Table forwards_of(const Table& table);

/// Returns `table` with the backward of `stage` whole, for layers whose backward cannot be split:
/// B stands in the place of I, and W is left out.
Table with_whole_backward(const Table& table, int stage);

}  // namespace lockstep::pipeline
