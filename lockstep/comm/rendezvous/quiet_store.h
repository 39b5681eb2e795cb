// When LibTorch's store throws an error, for example because rank 0 and its store are gone, it also
// logs the error with a backtrace, as a warning, to standard error. A library should not print, so
// this store turns LibTorch's warnings off during each call: the exception carries the error.
#pragma once

#include <lockstep/comm/rendezvous/forwarding_store.h>

namespace lockstep::comm {

/// While an instance exists, LibTorch logs no warnings in the whole process, only messages of level
/// error and above: LibTorch has a single global log level and no log sink. Keep it around single
/// calls only. LOCKSTEP_LOG_LEVEL=debug leaves the level unchanged. Safe to use from several
/// threads.
class QuietLibTorch {
 public:
  QuietLibTorch();
  ~QuietLibTorch();
  QuietLibTorch(const QuietLibTorch&) = delete;
  QuietLibTorch& operator=(const QuietLibTorch&) = delete;
};

/// Forwards every call to `store` with LibTorch's warnings off. Safe to use from several threads if
/// `store` is.
class QuietStore final : public ForwardingStore<QuietLibTorch> {
 public:
  using ForwardingStore::ForwardingStore;
  c10::intrusive_ptr<c10d::Store> clone() override;
};

}  // namespace lockstep::comm
