// The interface between the library and the module lockstep_http: plain C, so that no C++ type,
// exception or allocator crosses it.
//
// The module exists because libcurl depends on some forty shared libraries, which every program
// would otherwise load at its start.
#pragma once

#include <stddef.h>

extern "C" {

struct lockstep_http_request_v1 {
  const char* method;  ///< "GET" or "POST"
  const char* url;     ///< http or https
  const char* body;    ///< JSON
  size_t body_bytes;
  const char* username;  ///< with a password; null: no basic authentication
  const char* password;
  const char* token;  ///< null: no bearer token
  long timeout_ms;    ///< for the whole request
  /// Polled once a second; a non-zero result ends the request.
  int (*cancelled)(void* user);
  void* user;
};

struct lockstep_http_answer_v1 {
  long status;      ///< status code of HTTP
  char* text;       ///< receives the beginning of the answer, null-terminated
  size_t capacity;  ///< bytes of `text`
};

/// Makes a client, which keeps its connection between requests; null if libcurl cannot be
/// initialised. Use a client from one thread at a time.
typedef void* (*lockstep_http_open_v1)();
/// Returns 0 if the server answered, whatever its status; otherwise 1, with a message in `error`.
typedef int (*lockstep_http_send_v1)(void* client, const lockstep_http_request_v1* request,
                                     lockstep_http_answer_v1* answer, char* error,
                                     size_t error_bytes);
typedef void (*lockstep_http_close_v1)(void* client);
}

namespace lockstep::report {
inline constexpr const char* kHttpModule = "lockstep_http.so";
inline constexpr const char* kHttpOpenSymbol = "lockstep_http_open_client_v1";
inline constexpr const char* kHttpSendSymbol = "lockstep_http_send_request_v1";
inline constexpr const char* kHttpCloseSymbol = "lockstep_http_close_client_v1";
}  // namespace lockstep::report
