#include <lockstep/formats/checkpoint_manifest.h>

#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>

#include <lockstep/core/encoding/json_text.h>
#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/formats/printable.h>

namespace lockstep::formats {
namespace {

// Keeps the order of the entries, as in the header's example.
using ManifestJson = nlohmann::ordered_json;

constexpr const char* kManifestFormat = "lockstep checkpoint folder 1";
constexpr const char* kManifestChecksum = "xxh3_64";
constexpr std::size_t kChecksumDigits = 16;
constexpr int kManifestDepth = 3;  // {"files": {name: {..}}}

std::string manifest_text(const ManifestJson& json) { return json_text(json, 2) + "\n"; }

std::string checksum_of_text(const std::string& text) {
  return checksum_digits(checksum(std::as_bytes(std::span(text.data(), text.size()))));
}

ManifestJson json_of(const CheckpointManifest& manifest) {
  ManifestJson json = {{"format", kManifestFormat},
                       {"epoch", manifest.epoch},
                       {"step", manifest.step},
                       {"sequence", manifest.sequence},
                       {"first_sequence", manifest.first_sequence}};
  if (manifest.parent != 0) json["parent"] = manifest.parent;
  if (!manifest.finite) json["finite"] = false;
  json["metrics"] = ManifestJson::object();
  json["files"] = ManifestJson::object();
  for (const auto& [name, value] : manifest.metrics) json["metrics"][name] = value;
  for (const auto& [name, file] : manifest.files) {
    json["files"][name] = {{"bytes", file.bytes},
                           {kManifestChecksum, checksum_digits(file.checksum)}};
  }
  return json;
}

// Reads a text whose checksum is correct. Throws nlohmann's exceptions for wrong types.
class ManifestReader {
 public:
  ManifestReader(const ManifestJson& json, const std::string& name) : json_(json), name_(name) {}

  CheckpointManifest read() const {
    CheckpointManifest manifest{.epoch = number("epoch", 1),
                                .step = number("step", 0),
                                .sequence = number("sequence", 1),
                                .first_sequence = number("first_sequence", 1)};
    if (json_.contains("parent")) manifest.parent = number("parent", 1);
    if (json_.contains("finite")) manifest.finite = json_.at("finite").get<bool>();
    if (manifest.parent >= manifest.sequence) {
      fail("its parent is ", manifest.parent, ", expected one below its sequence ",
           manifest.sequence);
    }
    for (const auto& [name, value] : json_.at("metrics").items()) {
      manifest.metrics[name] = value.get<double>();
    }
    for (const auto& [name, entry] : json_.at("files").items()) {
      if (name.empty() || name.starts_with('.') || name.find('/') != std::string::npos) {
        fail("'", printable(name), "' is not the name of a file in the folder");
      }
      manifest.files[name] = {.bytes = entry.at("bytes").get<std::uint64_t>(),
                              .checksum = digits(entry.at(kManifestChecksum))};
    }
    return manifest;
  }

  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw CheckpointError(str(name_, " is damaged: ", values...));
  }

 private:
  std::int64_t number(const char* key, std::int64_t least) const {
    const auto value = json_.at(key).get<std::int64_t>();
    if (value < least) fail("its ", key, " is ", value, ", expected at least ", least);
    return value;
  }

  std::uint64_t digits(const ManifestJson& entry) const {
    const auto text = entry.get<std::string>();
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
    if (error == std::errc() && stop == end && text.size() == kChecksumDigits) return value;
    fail("'", printable(text), "' is not a checksum");
  }

  const ManifestJson& json_;
  const std::string& name_;
};

ManifestJson parse_manifest_json(std::string_view text, const std::string& name) {
  // Writing a value takes more stack the deeper it is.
  const auto bound_depth = [&](int depth, ManifestJson::parse_event_t, const ManifestJson&) {
    if (depth <= kManifestDepth) return true;
    throw CheckpointError(str(name, " is damaged: it is nested too deeply"));
  };
  try {
    ManifestJson json = ManifestJson::parse(text, bound_depth);
    if (json.is_object() && json.contains("format") && json.contains(kManifestChecksum)) {
      return json;
    }
  } catch (const ManifestJson::exception& error) {
    throw CheckpointError(
        str(name, " is damaged: it is not JSON (", printable(json_problem(error)), ")"));
  }
  throw CheckpointError(str(name, " is damaged: it is not a manifest of a checkpoint"));
}

}  // namespace

std::string checksum_digits(std::uint64_t checksum) {
  char text[kChecksumDigits + 1];
  std::snprintf(text, sizeof(text), "%016" PRIx64, checksum);
  return text;
}

std::string serialize_manifest(const CheckpointManifest& manifest) {
  ManifestJson json = json_of(manifest);
  json[kManifestChecksum] = checksum_of_text(manifest_text(json));
  return manifest_text(json);
}

CheckpointManifest parse_manifest(std::string_view text, const std::string& name) {
  ManifestJson json = parse_manifest_json(text, name);
  const ManifestReader reader(json, name);
  try {
    const auto expected = json[kManifestChecksum].get<std::string>();
    json.erase(kManifestChecksum);
    const std::string found = checksum_of_text(manifest_text(json));
    if (found != expected) {
      reader.fail("its checksum is ", found, ", expected ", printable(expected));
    }
    const auto format = json["format"].get<std::string>();
    if (format != kManifestFormat) {
      throw UnknownManifestError(str(name, " has the format '", printable(format),
                                     "', which this version does not know; it reads '",
                                     kManifestFormat, "'"));
    }
    const CheckpointManifest manifest = reader.read();
    // Differences that JSON ignores, such as a blank, are damage too.
    if (serialize_manifest(manifest) != text) {
      reader.fail("its text is another than the one that was written");
    }
    return manifest;
  } catch (const ManifestJson::exception& error) {
    reader.fail("an entry has another type (", printable(json_problem(error)), ")");
  }
}

}  // namespace lockstep::formats
