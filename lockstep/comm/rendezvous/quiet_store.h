// LibTorch's store logs each error that it throws, with a backtrace, as a warning on standard
// error, for example when rank 0 and its store are gone. A library should not print, so this store
// suppresses the warning: the exception carries the error.
#pragma once

#include <lockstep/comm/rendezvous/forwarding_store.h>

namespace lockstep::comm {

/// While an instance exists, LibTorch prints errors but no warnings, in the whole process: LibTorch
/// has a single global log level and no log sink. Keep it around single calls only.
/// LOCKSTEP_LOG_LEVEL=debug leaves the level unchanged. Safe to use from several threads.
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
