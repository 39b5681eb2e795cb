#include <lockstep/comm/rendezvous/quiet_store.h>

#include <c10/util/Logging.h>

#include <mutex>

#include <lockstep/core/log.h>

namespace lockstep::comm {
namespace {

constexpr int kErrors = 2;  // glog's severity number

struct Level {
  std::mutex mutex;  // guards the members below
  int users = 0;
  int before = 0;
};

// Never destroyed: a thread of another library may still be in a call when the process exits.
Level& level() {
  static Level& level = *new Level;
  return level;
}

}  // namespace

QuietLibTorch::QuietLibTorch() {
  Level& shared = level();
  const std::scoped_lock lock(shared.mutex);
  if (shared.users++ > 0) return;
  shared.before = FLAGS_caffe2_log_level;
  if (shared.before < kErrors && !log_enabled(LogLevel::kDebug)) FLAGS_caffe2_log_level = kErrors;
}

QuietLibTorch::~QuietLibTorch() {
  Level& shared = level();
  const std::scoped_lock lock(shared.mutex);
  if (--shared.users > 0) return;
  // Restores the level unless the program has changed it in the meantime.
  if (FLAGS_caffe2_log_level == kErrors) FLAGS_caffe2_log_level = shared.before;
}

c10::intrusive_ptr<c10d::Store> QuietStore::clone() {
  const QuietLibTorch quiet;
  return c10::make_intrusive<QuietStore>(store().clone());
}

}  // namespace lockstep::comm
