// HTTP requests with JSON, for loggers that use a server.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/report/loggers/http_module.h>
#include <lockstep/report/loggers/mlflow_server.h>

namespace lockstep::report {

struct HttpAnswer {
  long status = 0;
  std::string text{};  ///< at most the first 64 KiB
};

/// A persistent connection to servers, through the module lockstep_http, which links libcurl. Use
/// it from one thread at a time.
class HttpClient {
 public:
  /// Throws a ConfigError that lists the places searched if the module cannot be loaded.
  explicit HttpClient(HttpCredentials credentials = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// post() sends `body` with POST; get() sends a GET. Both throw CommError if no complete answer
  /// arrives within `timeout`, or, within about a second, once `cancelled` is set.
  HttpAnswer post(const std::string& url, const std::string& body,
                  std::chrono::milliseconds timeout, const std::atomic<bool>& cancelled);
  HttpAnswer get(const std::string& url, std::chrono::milliseconds timeout,
                 const std::atomic<bool>& cancelled);

 private:
  HttpAnswer send(const char* method, const std::string& url, const std::string& body,
                  std::chrono::milliseconds timeout, const std::atomic<bool>& cancelled);

  HttpCredentials credentials_;
  lockstep_http_send_v1 send_ = nullptr;
  lockstep_http_close_v1 close_ = nullptr;
  void* client_ = nullptr;
};

/// Returns `text` percent-encoded for the query of a URL.
std::string percent_encoded(const std::string& text);

}  // namespace lockstep::report
