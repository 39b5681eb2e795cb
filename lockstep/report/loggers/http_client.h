// Requests over HTTP with JSON, for the loggers that talk to a server.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/report/loggers/http_module.h>

namespace lockstep {

struct HttpCredentials {
  std::string username{};  ///< empty: no basic authentication
  std::string password{};
  std::string token{};  ///< not empty: sent instead as a bearer token
};

struct HttpAnswer {
  long status = 0;
  std::string text{};  ///< at most its first 64 KiB
};

/// A connection to servers, kept from request to request, over the module lockstep_http, which
/// brings libcurl. For one thread at a time.
class HttpClient {
 public:
  /// ConfigError when the module cannot be loaded; it says where it was looked for.
  explicit HttpClient(HttpCredentials credentials = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Sends `body` (POST), or asks without one (GET). CommError when no whole answer came within
  /// `timeout`, or, about a second after it was set, because of `cancelled`.
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

/// `text` as it may stand in the query of an address.
std::string percent_encoded(const std::string& text);

}  // namespace lockstep
