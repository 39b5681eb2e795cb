// The store that rank 0 serves. It speaks the protocol of PyTorch's TCPStore (protocol.h).
// LibTorch's own server looks up the name of each host that connects, in the thread that serves all
// clients, so a slow name server delays every rank for seconds.
//
// Anyone who reaches the port may connect. With a secret, a connection that has not proven it may
// do nothing else, and the store holds some hundred bytes for it. Without one, every process that
// reaches the port is trusted with the contents, but not with the memory of this process: keys,
// values, waits, answers that a client does not read, and queries that have not arrived completely
// share one budget, and a client whose query exceeds it is disconnected.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include <lockstep/comm/store/proof.h>

namespace lockstep::tcp_store {

struct ServerOptions {
  /// Every connection must prove the secret of this hash. Empty: the job has no secret.
  Mac mac{};
  /// How many bytes the store may hold if there is no secret.
  std::size_t most_bytes = std::size_t{64} << 20;
  /// How many connections may be unproven at the same time, or silent if there is no secret. Others
  /// wait in the queue of the listening socket.
  std::size_t most_strangers = 64;
  /// After this time such a connection is closed.
  std::chrono::milliseconds time_to_prove{10'000};
};

/// Serves on its own thread until it is destroyed. Its keys are lost with it.
class Server {
 public:
  /// Takes ownership of `listen_fd`, a listening socket.
  explicit Server(int listen_fd, ServerOptions options = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep::tcp_store
