// The address of an MLflow server, and the credentials for it.
#pragma once

#include <string>

#include <lockstep/core/export.h>

namespace lockstep {

struct LOCKSTEP_API HttpCredentials {
  std::string username{};  ///< empty: no basic authentication
  std::string password{};
  std::string token{};  ///< if not empty, sent instead as a bearer token
};

/// The server that runs are sent to.
struct LOCKSTEP_API MlflowServer {
  std::string tracking_uri{};           ///< http://HOST:PORT or https://...
  std::string experiment = "lockstep";  ///< created if it does not exist
  HttpCredentials credentials{};
};

}  // namespace lockstep
