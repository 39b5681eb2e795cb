// A web server on the loopback interface. It serves files, or the replies of a function.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace lockstep::testing_support {

using HttpFiles = std::map<std::string, std::string>;

struct HttpRequest {
  std::string path{};  ///< "/mnist/file?query"
  std::string head{};  ///< including the empty line that ends it
  std::string body{};
};

struct HttpReply {
  int status = 200;
  std::string content{};
  std::string headers{};    ///< each ends with "\r\n"
  bool keeps_open = false;  ///< whether the client may send further requests over its connection
};

/// Called on the server's thread. If it returns no reply, the connection stays open until the
/// client gives up.
using HttpHandler = std::function<std::optional<HttpReply>(const HttpRequest& request)>;

/// Serves one connection at a time, and one request per connection unless its reply keeps it open.
class HttpServer {
 public:
  explicit HttpServer(HttpHandler handler) : handler_(std::move(handler)) {
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
  /// Serves `files` by their paths ("/mnist/file"), and 404 for all other paths.
  explicit HttpServer(HttpFiles files)
      : HttpServer(HttpHandler([files = std::move(files)](const HttpRequest& request) {
          const auto file = files.find(request.path);
          return file == files.end() ? HttpReply{.status = 404, .content = "not here"}
                                     : HttpReply{.content = file->second};
        })) {}
  ~HttpServer() { stop(); }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  /// The number of connections so far.
  int requests() const { return requests_; }

  /// Stops the server. Later connections are refused.
  void stop() {
    if (listener_ < 0) return;
    stopped_ = true;
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
      while (answer(connection)) continue;
      close(connection);
    }
  }

  // Waits until the client sends something or ends the connection, or the server stops.
  void wait_for_client(int connection) const {
    pollfd client{.fd = connection, .events = POLLIN | POLLRDHUP, .revents = 0};
    while (!stopped_ && poll(&client, 1, 20) == 0) {
    }
  }

  // Returns whether another request may follow.
  bool answer(int connection) const {
    HttpRequest request;
    if (!receive(connection, request)) return false;
    const std::optional<HttpReply> reply = handler_(request);
    if (!reply) {
      wait_for_client(connection);
      return false;
    }
    const std::string response =
        "HTTP/1.1 " + std::to_string(reply->status) + " X\r\n" +
        (reply->keeps_open ? "" : "Connection: close\r\n") + reply->headers +
        "Content-Length: " + std::to_string(reply->content.size()) + "\r\n\r\n" + reply->content;
    for (std::size_t sent = 0; sent < response.size();) {
      const ssize_t size =
          send(connection, response.data() + sent, response.size() - sent, MSG_NOSIGNAL);
      if (size <= 0) return false;
      sent += static_cast<std::size_t>(size);
    }
    if (!reply->keeps_open) return false;
    wait_for_client(connection);
    return !stopped_;
  }

  static bool receive(int connection, HttpRequest& request) {
    std::string text;
    std::size_t body = std::string::npos;
    std::size_t wanted = 0;
    char buffer[4096];
    while (body == std::string::npos || text.size() < body + wanted) {
      const ssize_t size = recv(connection, buffer, sizeof(buffer), 0);
      if (size <= 0) return false;
      text.append(buffer, static_cast<std::size_t>(size));
      if (body != std::string::npos || text.find("\r\n\r\n") == std::string::npos) continue;
      body = text.find("\r\n\r\n") + 4;
      const std::size_t length = text.find("Content-Length: ");
      if (length < body) wanted = std::stoul(text.substr(length + 16));
    }
    const std::size_t begin = text.find(' ') + 1;
    request = {.path = text.substr(begin, text.find(' ', begin) - begin),
               .head = text.substr(0, body),
               .body = text.substr(body)};
    return true;
  }

  const HttpHandler handler_;
  std::atomic<int> requests_{0};
  std::atomic<bool> stopped_{false};
  int listener_ = -1;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace lockstep::testing_support
