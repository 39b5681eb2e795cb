// A web server on the loopback interface, for the tests of downloads. One request a connection.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace lockstep::testing_support {

using HttpFiles = std::map<std::string, std::string>;

class HttpServer {
 public:
  /// Serves `files`, by path ("/mnist/file"); 404 for others.
  explicit HttpServer(HttpFiles files) : files_(std::move(files)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, raw, length) != 0 || listen(listener_, 16) != 0 ||
        getsockname(listener_, raw, &length) != 0) {
      throw std::runtime_error("no loopback socket");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() { stop(); }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int requests() const { return requests_; }

  /// From now on connections are refused.
  void stop() {
    if (listener_ < 0) return;
    shutdown(listener_, SHUT_RDWR);  // wakes accept()
    thread_.join();
    close(listener_);
    listener_ = -1;
  }

 private:
  void serve() {
    for (;;) {
      const int connection = accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      ++requests_;
      answer(connection);
      close(connection);
    }
  }

  void answer(int connection) const {
    std::string request;
    char buffer[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t size = recv(connection, buffer, sizeof(buffer), 0);
      if (size <= 0) return;
      request.append(buffer, static_cast<std::size_t>(size));
    }
    const std::size_t begin = request.find(' ') + 1;
    const auto file = files_.find(request.substr(begin, request.find(' ', begin) - begin));
    const bool found = file != files_.end();
    const std::string content = found ? file->second : "not here";
    const std::string response =
        std::string("HTTP/1.1 ") + (found ? "200 OK" : "404 Not Found") +
        "\r\nConnection: close\r\nContent-Length: " + std::to_string(content.size()) + "\r\n\r\n" +
        content;
    for (std::size_t sent = 0; sent < response.size();) {
      const ssize_t size =
          send(connection, response.data() + sent, response.size() - sent, MSG_NOSIGNAL);
      if (size <= 0) return;
      sent += static_cast<std::size_t>(size);
    }
  }

  HttpFiles files_;
  std::atomic<int> requests_{0};
  int listener_ = -1;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace lockstep::testing_support
