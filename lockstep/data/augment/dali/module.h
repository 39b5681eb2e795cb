// The border between the program and the module lockstep_dali: plain data and functions, so that no
// C++ type, exception or allocator crosses it.
//
// The module exists because DALI's libraries take 310 MB and half a second to load, and come in a
// wheel that most builds do not have. The module does not know Lockstep's operators: it builds,
// feeds and runs a chain of DALI operators.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

enum lockstep_dali_type {
  kLockstepDaliUint8,
  kLockstepDaliInt32,
  kLockstepDaliFloat32,
  kLockstepDaliFloat16
};

enum lockstep_dali_device { kLockstepDaliCpu, kLockstepDaliGpu, kLockstepDaliMixed };

/// An input that is fed for each batch: a tensor of `dimensions` dimensions per sample.
struct lockstep_dali_input {
  const char* name;
  lockstep_dali_type type;
  int32_t dimensions;
  const char* layout;  ///< Such as "CHW"; null: none.
};

enum lockstep_dali_kind {
  kLockstepDaliFlag,  ///< `integer`, 0 or 1.
  kLockstepDaliInteger,
  kLockstepDaliText,
  kLockstepDaliNumbers,
  kLockstepDaliFed  ///< The values come from the input whose name is `text`.
};

/// An argument of an operator; `kind` selects the member that holds its value.
struct lockstep_dali_argument {
  const char* name;
  lockstep_dali_kind kind;
  int64_t integer;
  const char* text;
  const float* numbers;
  size_t count;
};

/// An operator, whose input is the output of the operator before it.
struct lockstep_dali_operator {
  const char* schema;  ///< DALI's name of the operator.
  lockstep_dali_device device;
  const lockstep_dali_argument* arguments;
  size_t argument_count;
};

struct lockstep_dali_graph {
  const lockstep_dali_input* inputs;  ///< The first one is the input of the first operator.
  size_t input_count;
  const lockstep_dali_operator* operators;
  size_t operator_count;
  int32_t maximum_batch;
  int32_t threads;
  int32_t prefetch;  ///< Batches in flight at once.
  int32_t gpu;       ///< Index of the GPU; -1: CPU only.
};

/// A batch of one input: either `data` or `samples` is set, and the other is null. The module reads
/// the memory until the batch has been popped.
struct lockstep_dali_feed {
  const void* data;            ///< All samples, contiguous; `shapes` is the shape of each.
  const void* const* samples;  ///< A pointer to each sample; `shapes` holds a shape for each.
  const int64_t* shapes;
};

/// The output of the last operator: samples of one shape, contiguous, in the memory of the graph's
/// device.
struct lockstep_dali_output {
  void* data;
  size_t bytes;
  void* handle;  ///< For release().
};

/// Each function that returns an int returns 0 on success, or 1 with a message in `error` (of
/// `error_size` bytes). Not thread-safe.
struct lockstep_dali_functions_v1 {
  int (*create)(const lockstep_dali_graph* graph, void** pipeline, char* error, size_t error_size);
  /// Starts a batch of `count` samples. `feeds` has one element for each input.
  int (*run)(void* pipeline, int64_t count, const lockstep_dali_feed* feeds, char* error,
             size_t error_size);
  /// Waits for the oldest batch that was started. After a failure only destroy() may be called.
  int (*pop)(void* pipeline, lockstep_dali_output* output, char* error, size_t error_size);
  void (*release)(void* handle);
  void (*destroy)(void* pipeline);
};

typedef const lockstep_dali_functions_v1* (*lockstep_dali_v1)();
}

namespace lockstep::data {
inline constexpr const char* kDaliModule = "lockstep_dali.so";
inline constexpr const char* kDaliSymbol = "lockstep_dali_entry_v1";
}  // namespace lockstep::data
