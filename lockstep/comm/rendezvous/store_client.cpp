#include <lockstep/comm/rendezvous/store_client.h>

#include <utility>

#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

// TCPStore puts this prefix before every key.
std::string full(const std::string& key) { return "/" + key; }

std::vector<std::string> full(const std::vector<std::string>& keys) {
  std::vector<std::string> all;
  all.reserve(keys.size());
  for (const auto& key : keys) all.push_back(full(key));
  return all;
}

}  // namespace

StoreClient::StoreClient(tcp_store::ConnectionOptions options,
                         std::shared_ptr<tcp_store::Server> server)
    : c10d::Store(options.timeout), server_(std::move(server)), connection_(std::move(options)) {}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  return c10::make_intrusive<StoreClient>(connection_.options(), server_);
}

void StoreClient::set(const std::string& key, const Bytes& value) {
  connection_.set(full(key), store_text(value));
}

StoreClient::Bytes StoreClient::compareSet(const std::string& key, const Bytes& expected,
                                           const Bytes& desired) {
  return store_bytes(connection_.compare_set(full(key), store_text(expected), store_text(desired)));
}

StoreClient::Bytes StoreClient::get(const std::string& key) { return multiGet({key})[0]; }

std::int64_t StoreClient::add(const std::string& key, std::int64_t value) {
  return connection_.add(full(key), value);
}

bool StoreClient::deleteKey(const std::string& key) { return connection_.remove(full(key)); }

bool StoreClient::check(const std::vector<std::string>& keys) {
  return connection_.check(full(keys));
}

std::int64_t StoreClient::getNumKeys() { return connection_.count_keys(); }

void StoreClient::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void StoreClient::wait(const std::vector<std::string>& keys,
                       const std::chrono::milliseconds& timeout) {
  if (connection_.wait(full(keys),
                       timeout == kNoTimeout ? std::chrono::milliseconds::max() : timeout)) {
    return;
  }
  throw TimeoutError(lockstep::str(connection_.options().who, " waited ",
                                   static_cast<double>(timeout.count()) / 1e3, " s for ",
                                   join(keys), " in the store"));
}

void StoreClient::append(const std::string& key, const Bytes& value) {
  connection_.append(full(key), store_text(value));
}

std::vector<StoreClient::Bytes> StoreClient::multiGet(const std::vector<std::string>& keys) {
  wait(keys);
  std::vector<Bytes> values;
  for (const auto& value : connection_.get(full(keys))) values.push_back(store_bytes(value));
  return values;
}

void StoreClient::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  TORCH_CHECK(keys.size() == values.size(), "multiSet: as many keys as values");
  for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

}  // namespace lockstep::comm
