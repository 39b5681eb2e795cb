// LibTorch's store prints on standard error, with a backtrace, what it also throws, as when rank 0
// is gone and the store with it. A library does not print: the error says it.
#pragma once

#include <lockstep/comm/rendezvous/forwarding_store.h>

namespace lockstep {

/// While one exists LibTorch prints no warnings (errors it does), in the whole process: it has one
/// level for all of it, and no sink. So keep it around single calls. With LOCKSTEP_LOG_LEVEL=debug
/// the level stays. Safe to use from several threads.
class QuietLibTorch {
 public:
  QuietLibTorch();
  ~QuietLibTorch();
  QuietLibTorch(const QuietLibTorch&) = delete;
  QuietLibTorch& operator=(const QuietLibTorch&) = delete;
};

/// Passes everything on, quietly. Safe to use from several threads if `store` is.
class QuietStore final : public ForwardingStore<QuietLibTorch> {
 public:
  using ForwardingStore::ForwardingStore;
  c10::intrusive_ptr<c10d::Store> clone() override;
};

}  // namespace lockstep
