#include <lockstep/simulate/step_profile.h>

#include <cmath>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/core/encoding/json_text.h>
#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>

namespace lockstep::simulate {
namespace {

using ProfileJson = nlohmann::ordered_json;

// The members in seconds, by name.
constexpr std::pair<const char*, double StepProfile::*> kSeconds[] = {
    {"data_seconds", &StepProfile::data_seconds},
    {"forward_seconds", &StepProfile::forward_seconds},
    {"backward_seconds", &StepProfile::backward_seconds},
    {"optimizer_seconds", &StepProfile::optimizer_seconds},
    {"other_seconds", &StepProfile::other_seconds},
    {"straggler_seconds", &StepProfile::straggler_seconds},
    {"step_seconds", &StepProfile::step_seconds},
    {"step_low_seconds", &StepProfile::step_low_seconds},
    {"step_high_seconds", &StepProfile::step_high_seconds},
    {"exposed_seconds", &StepProfile::exposed_seconds}};

StepProfile profile_of(const ProfileJson& json) {
  StepProfile profile;
  profile.name = json.value("name", profile.name);
  profile.strategy = json.value("strategy", std::string("ddp"));
  profile.backend = json.value("backend", profile.backend);
  profile.ranks = json.value("ranks", profile.ranks);
  profile.batch_per_rank = json.value("batch_per_rank", profile.batch_per_rank);
  profile.processors = json.value("processors", profile.processors);
  profile.threads_per_rank = json.value("threads_per_rank", profile.threads_per_rank);
  profile.steps = json.value("steps", profile.steps);
  for (const auto& [name, member] : kSeconds) profile.*member = json.value(name, 0.0);
  for (const ProfileJson& bucket : json.at("buckets")) {
    profile.buckets.push_back({.bytes = bucket.at("bytes").get<double>(),
                               .ready_seconds = bucket.at("ready_seconds").get<double>(),
                               .parameters = bucket.value("parameters", std::int64_t{1})});
  }
  return profile;
}

}  // namespace

double StepProfile::bytes() const {
  double sum = 0;
  for (const ProfileBucket& bucket : buckets) sum += bucket.bytes;
  return sum;
}

double StepProfile::compute_seconds() const {
  return data_seconds + forward_seconds + backward_seconds + optimizer_seconds + other_seconds;
}

void validate(const StepProfile& profile, const std::string& where) {
  const auto fail = [&](const auto&... text) { throw ConfigError(str(where, ": ", text...)); };
  for (const auto& [name, member] : kSeconds) {
    const double seconds = profile.*member;
    if (!std::isfinite(seconds) || seconds < 0) fail(name, " must be at least 0, got ", seconds);
  }
  if (profile.strategy != "ddp") {
    fail("strategy must be ddp, got '", profile.strategy,
         "': the profile has the whole update; strategy zero1 divides it by the ranks");
  }
  if (profile.ranks < 1) fail("ranks must be at least 1, got ", profile.ranks);
  constexpr std::int64_t kMostThreads = 1 << 20;
  if (profile.threads_per_rank < 1 || profile.threads_per_rank > kMostThreads) {
    fail("threads_per_rank must be from 1 to ", kMostThreads, ", got ", profile.threads_per_rank);
  }
  if (profile.compute_seconds() <= 0) fail("a step of this profile takes no time");
  if (profile.buckets.empty()) fail("there is no bucket of gradients");
  double ready = 0;
  for (const ProfileBucket& bucket : profile.buckets) {
    if (!(bucket.bytes > 0) || !std::isfinite(bucket.bytes) || bucket.parameters < 1) {
      fail("a bucket must have bytes and parameters, got ", bucket.bytes, " and ",
           bucket.parameters);
    }
    if (bucket.parameters > kMostBucketParameters ||
        static_cast<double>(bucket.parameters) > bucket.bytes) {
      fail("a bucket must have at most ", kMostBucketParameters,
           " parameters, and no more than bytes, got ", bucket.parameters, " in ", bucket.bytes,
           " bytes");
    }
    if (!(bucket.ready_seconds >= ready) || bucket.ready_seconds > profile.backward_seconds) {
      fail("buckets must be ready one behind the other, and before backward ends at ",
           profile.backward_seconds, " s, got ", bucket.ready_seconds);
    }
    ready = bucket.ready_seconds;
  }
}

StepProfile read_step_profile(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw DataError(str("cannot read ", file.string()));
  try {
    StepProfile profile = profile_of(ProfileJson::parse(stream));
    validate(profile, file.string());
    return profile;
  } catch (const ProfileJson::exception& error) {
    throw DataError(json_refusal(file.string(), "is not the profile of a step", error));
  }
}

std::string to_json(const StepProfile& profile) {
  ProfileJson json{{"name", profile.name},
                   {"strategy", profile.strategy},
                   {"backend", profile.backend},
                   {"ranks", profile.ranks},
                   {"batch_per_rank", profile.batch_per_rank},
                   {"processors", profile.processors},
                   {"threads_per_rank", profile.threads_per_rank},
                   {"steps", profile.steps}};
  for (const auto& [name, member] : kSeconds) json[name] = profile.*member;
  ProfileJson buckets = ProfileJson::array();
  for (const ProfileBucket& bucket : profile.buckets) {
    buckets.push_back({{"bytes", bucket.bytes},
                       {"ready_seconds", bucket.ready_seconds},
                       {"parameters", bucket.parameters}});
  }
  json["buckets"] = std::move(buckets);
  return json_text(json, 2) + "\n";
}

}  // namespace lockstep::simulate
