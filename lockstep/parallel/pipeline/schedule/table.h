// A pipeline's schedule as data: the actions of each worker, in order. It uses neither LibTorch nor
// communication, so a table can be checked (check.h) and timed on paper (replay.h).
//
// The model is cut into stages, numbered from 0; a worker (a device, a thread or a rank) holds one
// or more of them, and the batch passes through as micro-batches. Actions are written as in
// PyTorch's torch.distributed.pipelining, as stage, kind, micro-batch: "2F0", "2B0", "1SEND_F3".
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep::pipeline {

enum class Kind {
  kForward,          ///< F: a stage's forward
  kBackward,         ///< B: its whole backward, the gradients of inputs and weights
  kBackwardInput,    ///< I: only the gradients of its inputs, for which the previous stage waits
  kBackwardWeight,   ///< W: the gradients of its weights, for which no worker waits
  kSendForward,      ///< SEND_F: its outputs, to the worker of the next stage
  kReceiveForward,   ///< RECV_F: its inputs, from the worker of the previous stage
  kSendBackward,     ///< SEND_B: the gradients of its inputs, to the worker of the previous stage
  kReceiveBackward,  ///< RECV_B: the gradients of its outputs, from the worker of the next stage
  kReduce,           ///< REDUCE_GRAD: reduces its weights' gradients over the pipeline's replicas
};

constexpr bool is_message(Kind kind) {
  return kind == Kind::kSendForward || kind == Kind::kReceiveForward ||
         kind == Kind::kSendBackward || kind == Kind::kReceiveBackward;
}
/// Whether the action computes the gradients of a stage's inputs.
constexpr bool is_gradient(Kind kind) {
  return kind == Kind::kBackward || kind == Kind::kBackwardInput;
}
/// Whether the action computes the gradients of a stage's weights.
constexpr bool is_weight_gradient(Kind kind) {
  return kind == Kind::kBackward || kind == Kind::kBackwardWeight;
}
/// Whether the action is a stage's computation: F, B, I or W.
constexpr bool is_compute(Kind kind) {
  return kind == Kind::kForward || is_gradient(kind) || is_weight_gradient(kind);
}

/// "F", "SEND_F", ...; a string literal.
LOCKSTEP_API const char* kind_name(Kind kind);
/// "forward", "backward", "message" or "reduction", for traces; a string literal.
LOCKSTEP_API const char* kind_category(Kind kind);

struct LOCKSTEP_API Action {
  Kind kind = Kind::kForward;
  int stage = 0;
  int micro_batch = 0;  ///< -1 for kReduce, which covers all micro-batches
  friend auto operator<=>(const Action&, const Action&) = default;
};

/// The action as text, such as "2F0".
LOCKSTEP_API std::string text(const Action& action);
/// Parses an action such as "2F0". Throws ConfigError for anything else.
LOCKSTEP_API Action action_of(std::string_view text);

struct LOCKSTEP_API Table {
  std::string name{};
  int micro_batches = 0;
  std::vector<int> worker_of{};                ///< for each stage, the worker that holds it
  std::vector<std::vector<Action>> workers{};  ///< for each worker, its actions in order

  int stages() const { return static_cast<int>(worker_of.size()); }
  friend bool operator==(const Table&, const Table&) = default;
};

/// One line per worker with its actions separated by commas, PyTorch's format for tables.
LOCKSTEP_API std::string csv(const Table& table);
/// Parses the format of csv(). A stage belongs to the worker in whose line it appears. Empty cells
/// are skipped. An empty line is a worker without actions; empty lines at the end are ignored.
/// Throws ConfigError for a cell that is not an action, and for a stage that appears in two lines.
LOCKSTEP_API Table table_of(std::string_view csv, std::string name);

/// The receive that matches `send`, a kSendForward or kSendBackward.
LOCKSTEP_API Action receive_of(const Action& send);

/// Returns `table` with the messages that its stages need. Each worker sends as soon as a result is
/// available, and receives just before it uses a message, from each other worker in the order of
/// that worker's sends. A send must not wait for its receive: otherwise workers could deadlock.
/// Neighbouring stages on one worker need no message. LOCKSTEP_CHECK: `table` has no messages yet.
LOCKSTEP_API Table with_messages(const Table& table);

/// Returns `table` with a reduction of each stage's gradients right after its last micro-batch.
/// Call it before with_messages(), so that no message waits for a reduction (LOCKSTEP_CHECK).
LOCKSTEP_API Table with_reductions(const Table& table);

/// Whether the table already has the messages between its workers.
LOCKSTEP_API bool has_messages(const Table& table);
/// Whether the table already has reductions.
LOCKSTEP_API bool has_reductions(const Table& table);

/// The forwards of `table` in their order, without messages: the actions of an evaluation.
LOCKSTEP_API Table forwards_of(const Table& table);

/// Returns `table` with a whole backward for `stage`, for layers whose backward cannot be split: B
/// replaces I, and W is removed.
LOCKSTEP_API Table with_whole_backward(const Table& table, int stage);

}  // namespace lockstep::pipeline
