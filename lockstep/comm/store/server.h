// The store that rank 0 serves. It speaks the protocol of PyTorch's TCPStore (protocol.h).
// LibTorch's own server looks up the name of each host that connects, in the thread that serves
// all: a slow name server holds up every rank for seconds.
#pragma once

#include <memory>

namespace lockstep::tcp_store {

/// Serves until it is destroyed, on a thread of its own. Its keys go with it.
class Server {
 public:
  /// Takes over `listen_fd`, a listening socket.
  explicit Server(int listen_fd);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep::tcp_store
