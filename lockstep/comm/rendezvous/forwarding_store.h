// Base class of stores that change some calls of another store and forward the others.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep::comm {

/// The guard of a ForwardingStore that needs none.
struct NoGuard {
  NoGuard() {}  // suppresses the unused-variable warning
};

/// Forwards every call to `store`. A `Guard` exists during each call, and while the store is
/// released. Safe to use from several threads if `store` is.
template <class Guard = NoGuard>
class ForwardingStore : public c10d::Store {
 public:
  using Bytes = std::vector<std::uint8_t>;

  explicit ForwardingStore(c10::intrusive_ptr<c10d::Store> store)
      : c10d::Store(store->getTimeout()), store_(std::move(store)) {}
  ~ForwardingStore() override {
    const Guard guard;
    store_.reset();
  }

  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const Bytes& value) override {
    const Guard guard;
    store_->set(key, value);
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    const Guard guard;
    return store_->compareSet(key, expected, desired);
  }
  Bytes get(const std::string& key) override {
    const Guard guard;
    return store_->get(key);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    const Guard guard;
    return store_->add(key, value);
  }
  bool deleteKey(const std::string& key) override {
    const Guard guard;
    return store_->deleteKey(key);
  }
  bool check(const std::vector<std::string>& keys) override {
    const Guard guard;
    return store_->check(keys);
  }
  std::int64_t getNumKeys() override {
    const Guard guard;
    return store_->getNumKeys();
  }
  void wait(const std::vector<std::string>& keys) override {
    const Guard guard;
    store_->wait(keys);
  }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    const Guard guard;
    store_->wait(keys, timeout);
  }
  void append(const std::string& key, const Bytes& value) override {
    const Guard guard;
    store_->append(key, value);
  }
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override {
    const Guard guard;
    return store_->multiGet(keys);
  }
  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override {
    const Guard guard;
    store_->multiSet(keys, values);
  }
  const std::chrono::milliseconds& getTimeout() const noexcept override {
    return store_->getTimeout();
  }
  void setTimeout(const std::chrono::milliseconds& timeout) override {
    store_->setTimeout(timeout);
  }
  bool hasExtendedApi() const override { return store_->hasExtendedApi(); }

 protected:
  c10d::Store& store() const { return *store_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace lockstep::comm
