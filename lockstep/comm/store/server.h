// The store that rank 0 serves. It speaks the protocol of PyTorch's TCPStore (protocol.h).
// LibTorch's own server looks up the name of each host that connects, in the thread that serves all
// clients, so a slow name server delays every rank for seconds.
#pragma once

#include <memory>

namespace lockstep::tcp_store {

/// Serves on its own thread until it is destroyed. Its keys are lost with it.
class Server {
 public:
  /// Takes ownership of `listen_fd`, a listening socket.
  explicit Server(int listen_fd);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep::tcp_store
