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
  /// http://HOST:PORT or https://... A user and a password in it (http://USER:PASSWORD@HOST) are
  /// used like `credentials`, which win, and are not shown.
  std::string tracking_uri{};
  std::string experiment = "lockstep";  ///< created if it does not exist
  HttpCredentials credentials{};
};

}  // namespace lockstep
