#include <lockstep/comm/rendezvous/quiet_store.h>

#include <c10/util/Logging.h>

#include <mutex>
#include <utility>

#include <lockstep/core/log.h>

namespace lockstep {
namespace {

constexpr int kErrors = 2;  // glog's number

struct Level {
  std::mutex mutex;  // guards the others
  int users = 0;
  int before = 0;
};

// Never destroyed: a thread of another library may still be in a call when the process ends.
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
  // Unless the program has chosen another one meanwhile.
  if (FLAGS_caffe2_log_level == kErrors) FLAGS_caffe2_log_level = shared.before;
}

QuietStore::QuietStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

QuietStore::~QuietStore() {
  const QuietLibTorch quiet;
  store_.reset();
}

c10::intrusive_ptr<c10d::Store> QuietStore::clone() {
  const QuietLibTorch quiet;
  return c10::make_intrusive<QuietStore>(store_->clone());
}

void QuietStore::set(const std::string& key, const Bytes& value) {
  const QuietLibTorch quiet;
  store_->set(key, value);
}

QuietStore::Bytes QuietStore::compareSet(const std::string& key, const Bytes& expected,
                                         const Bytes& desired) {
  const QuietLibTorch quiet;
  return store_->compareSet(key, expected, desired);
}

QuietStore::Bytes QuietStore::get(const std::string& key) {
  const QuietLibTorch quiet;
  return store_->get(key);
}

std::int64_t QuietStore::add(const std::string& key, std::int64_t value) {
  const QuietLibTorch quiet;
  return store_->add(key, value);
}

bool QuietStore::deleteKey(const std::string& key) {
  const QuietLibTorch quiet;
  return store_->deleteKey(key);
}

bool QuietStore::check(const std::vector<std::string>& keys) {
  const QuietLibTorch quiet;
  return store_->check(keys);
}

std::int64_t QuietStore::getNumKeys() {
  const QuietLibTorch quiet;
  return store_->getNumKeys();
}

void QuietStore::wait(const std::vector<std::string>& keys) {
  const QuietLibTorch quiet;
  store_->wait(keys);
}

void QuietStore::wait(const std::vector<std::string>& keys,
                      const std::chrono::milliseconds& timeout) {
  const QuietLibTorch quiet;
  store_->wait(keys, timeout);
}

const std::chrono::milliseconds& QuietStore::getTimeout() const noexcept {
  return store_->getTimeout();
}

void QuietStore::setTimeout(const std::chrono::milliseconds& timeout) {
  store_->setTimeout(timeout);
}

void QuietStore::append(const std::string& key, const Bytes& value) {
  const QuietLibTorch quiet;
  store_->append(key, value);
}

std::vector<QuietStore::Bytes> QuietStore::multiGet(const std::vector<std::string>& keys) {
  const QuietLibTorch quiet;
  return store_->multiGet(keys);
}

void QuietStore::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  const QuietLibTorch quiet;
  store_->multiSet(keys, values);
}

bool QuietStore::hasExtendedApi() const { return store_->hasExtendedApi(); }

}  // namespace lockstep
