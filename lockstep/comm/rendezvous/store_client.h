// The rendezvous store as a c10d::Store, for LibTorch's classes and Lockstep's. It uses Lockstep's
// own connection, on which every answer has a deadline.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/store/connection.h>
#include <lockstep/comm/store/server.h>

namespace lockstep::comm {

/// Works with the same stores as c10d::TCPStore and uses the same keys. Safe to use from several
/// threads; their calls run one at a time. Throws the errors of tcp_store::Connection. A wait for
/// missing keys throws TimeoutError, after which the store can still be used. Prints nothing.
class StoreClient final : public c10d::Store {
 public:
  using Bytes = std::vector<std::uint8_t>;

  /// `server`: the server behind the connection if this process runs it; kept alive by its clients.
  explicit StoreClient(tcp_store::ConnectionOptions options,
                       std::shared_ptr<tcp_store::Server> server = nullptr);

  /// A client with a connection of its own.
  c10::intrusive_ptr<c10d::Store> clone() override;
  using Store::compareSet;
  using Store::set;
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
  void append(const std::string& key, const Bytes& value) override;
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  std::shared_ptr<tcp_store::Server> server_;
  tcp_store::Connection connection_;
};

}  // namespace lockstep::comm
