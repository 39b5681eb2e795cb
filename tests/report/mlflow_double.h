// A stand-in for an MLflow server on the loopback interface, which can be told to fail.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::testing_support {

/// Answers as MLflow does, so far as MlflowClient asks; keeps what it was sent. One request a
/// connection.
class MlflowDouble {
 public:
  struct Request {
    std::string path{};  ///< behind /api/2.0/mlflow/
    std::string head{};
    std::string body{};
  };

  MlflowDouble() {
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
  ~MlflowDouble() {
    stopped_ = true;
    shutdown(listener_, SHUT_RDWR);  // wakes accept()
    thread_.join();
    close(listener_);
  }
  MlflowDouble(const MlflowDouble&) = delete;
  MlflowDouble& operator=(const MlflowDouble&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  /// From now on: answers this status with a message, or as MLflow with 200.
  void answer_with(int status) { status_ = status; }
  /// From now on: takes requests and answers nothing.
  void fall_silent() { silent_ = true; }

  std::vector<Request> requests() const {
    const std::scoped_lock lock(mutex_);
    return requests_;
  }
  int count_of(const std::string& path) const {
    const std::scoped_lock lock(mutex_);
    return static_cast<int>(std::ranges::count(requests_, path, &Request::path));
  }
  /// Waits until that many requests for `path` have come; false after ten seconds.
  bool wait_for(const std::string& path, int count) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, std::chrono::seconds(10), [&] {
      return std::ranges::count(requests_, path, &Request::path) >= count;
    });
  }

 private:
  void serve() {
    for (;;) {
      const int connection = accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      answer(connection);
      close(connection);
    }
  }

  void answer(int connection) {
    Request request;
    if (!receive(connection, request)) return;
    const int told = status_;  // before the test knows of the request, and may tell something else
    {
      const std::scoped_lock lock(mutex_);
      requests_.push_back(request);
      came_.notify_all();
    }
    if (silent_) {  // until the other side gives up
      pollfd end{.fd = connection, .events = POLLIN | POLLRDHUP, .revents = 0};
      while (!stopped_ && poll(&end, 1, 20) == 0) {
      }
      return;
    }
    const auto [status, text] = reply_to(request, told);
    const std::string response =
        "HTTP/1.1 " + std::to_string(status) +
        " X\r\nConnection: close\r\nContent-Length: " + std::to_string(text.size()) + "\r\n\r\n" +
        text;
    for (std::size_t sent = 0; sent < response.size();) {
      const ssize_t size =
          send(connection, response.data() + sent, response.size() - sent, MSG_NOSIGNAL);
      if (size <= 0) return;
      sent += static_cast<std::size_t>(size);
    }
  }

  static bool receive(int connection, Request& request) {
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
    const std::string path = text.substr(begin, text.find(' ', begin) - begin);
    const std::string prefix = "/api/2.0/mlflow/";
    request = {.path = path.starts_with(prefix) ? path.substr(prefix.size()) : path,
               .head = text.substr(0, body),
               .body = text.substr(body)};
    return true;
  }

  std::pair<int, std::string> reply_to(const Request& request, int told) {
    if (told != 200) return {told, "{\"message\": \"told to\\nfail\"}"};
    if (request.path.starts_with("experiments/get-by-name")) {
      if (!has_experiment_) return {404, "{\"error_code\": \"RESOURCE_DOES_NOT_EXIST\"}"};
      return {200, "{\"experiment\": {\"experiment_id\": \"3\"}}"};
    }
    if (request.path == "experiments/create") {
      has_experiment_ = true;
      return {200, "{\"experiment_id\": \"3\"}"};
    }
    if (request.path == "runs/create") return {200, "{\"run\": {\"info\": {\"run_id\": \"r1\"}}}"};
    return {200, "{}"};
  }

  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> status_{200};
  std::atomic<bool> silent_{false};
  std::atomic<bool> stopped_{false};
  bool has_experiment_ = false;  // the thread's own
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Request> requests_;
  std::thread thread_;
};

}  // namespace lockstep::testing_support
