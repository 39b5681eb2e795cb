// LibTorch's store prints on standard error, with a backtrace, what it also throws, as when rank 0
// is gone and the store with it. A library does not print: the error says it.
#pragma once

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

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
class QuietStore final : public c10d::Store {
 public:
  using Bytes = std::vector<std::uint8_t>;

  explicit QuietStore(c10::intrusive_ptr<c10d::Store> store);
  ~QuietStore() override;

  using Store::compareSet;
  using Store::set;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const Bytes& value) override;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;
  Bytes get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const Bytes& value) override;
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override;
  bool hasExtendedApi() const override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace lockstep
