// Stands in for an MLflow server on the loopback interface, and can be told to fail.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tests/support/http_server.h>

namespace lockstep::testing_support {

/// Answers MlflowClient's requests like MLflow, and records them.
class MlflowDouble {
 public:
  std::string url() const { return server_.url(); }

  /// From now on, answers with this status and a message, or like MLflow if it is 200. With `path`,
  /// only requests for `path` are answered so.
  void answer_with(int status, const std::string& path = "") {
    const std::scoped_lock lock(mutex_);
    status_ = status;
    failing_path_ = path;
  }
  /// From now on, accepts requests and never answers.
  void fall_silent() { silent_ = true; }

  /// The recorded requests. Their paths are relative to /api/2.0/mlflow/.
  std::vector<HttpRequest> requests() const {
    const std::scoped_lock lock(mutex_);
    return requests_;
  }
  /// Waits until `count` requests for `path` have arrived. Returns false after ten seconds.
  bool wait_for(const std::string& path, int count) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, std::chrono::seconds(10), [&] {
      return std::ranges::count(requests_, path, &HttpRequest::path) >= count;
    });
  }

 private:
  std::optional<HttpReply> reply_to(HttpRequest request) {
    const std::string prefix = "/api/2.0/mlflow/";
    if (request.path.starts_with(prefix)) request.path.erase(0, prefix.size());
    bool fails = false;
    int status = 200;
    {
      // Answer before the test can see the request and change the answer.
      const std::scoped_lock lock(mutex_);
      status = status_;
      fails = status != 200 && (failing_path_.empty() || failing_path_ == request.path);
      requests_.push_back(request);
      came_.notify_all();
    }
    if (silent_) return std::nullopt;
    if (fails) return HttpReply{status, "{\"message\": \"told to\\nfail\"}"};
    return mlflow_reply(request.path);
  }

  HttpReply mlflow_reply(const std::string& path) {
    if (path.starts_with("experiments/get-by-name")) {
      if (!has_experiment_) return {404, "{\"error_code\": \"RESOURCE_DOES_NOT_EXIST\"}"};
      return {200, "{\"experiment\": {\"experiment_id\": \"3\"}}"};
    }
    if (path == "experiments/create") {
      has_experiment_ = true;
      return {200, "{\"experiment_id\": \"3\"}"};
    }
    if (path == "runs/create") return {200, "{\"run\": {\"info\": {\"run_id\": \"r1\"}}}"};
    return {200, "{}"};
  }

  std::atomic<bool> silent_{false};
  bool has_experiment_ = false;  // used only by the server's thread
  mutable std::mutex mutex_;     // guards the members below
  std::condition_variable came_;
  int status_ = 200;
  std::string failing_path_;
  std::vector<HttpRequest> requests_;
  HttpServer server_{HttpHandler([this](const HttpRequest& request) { return reply_to(request); })};
};

}  // namespace lockstep::testing_support
