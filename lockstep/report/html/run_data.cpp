#include <lockstep/report/html/run_data.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>

namespace lockstep::html {
namespace {

using RecordJson = nlohmann::ordered_json;

std::string text_of(const RecordJson& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

double number_or(const RecordJson& object, const char* name, double otherwise) {
  return object.contains(name) && object.at(name).is_number() ? object.at(name).get<double>() : otherwise;
}

EpochData epoch_of(const RecordJson& epoch) {
  EpochData data{.epoch = epoch.at("epoch").get<double>(),
                 .seconds = epoch.at("seconds").get<double>(),
                 .train_loss = number_or(epoch, "train_loss", 0),
                 .images_per_second = number_or(epoch, "images_per_second", 0)};
  if (data.seconds > 0) data.processors = number_or(epoch, "processor_seconds", 0) / data.seconds;
  if (epoch.contains("gpu") && epoch.at("gpu").is_object()) {
    data.gpu_utilisation = epoch.at("gpu").at("utilisation").get<double>();
  }
  const std::vector<std::string>& names = phase_names();
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    data.phases.push_back(number_or(epoch.at("phases"), names[i].c_str(), 0));
  }
  const double known = std::accumulate(data.phases.begin(), data.phases.end(), 0.0);
  data.phases.push_back(std::max(data.seconds - known, 0.0));
  if (epoch.contains("metrics") && epoch.at("metrics").is_object()) {
    for (const auto& [name, value] : epoch.at("metrics").items()) {
      if (value.is_number()) data.metrics[name] = value.get<double>();
    }
  }
  return data;
}

RunData data_of(const RecordJson& run) {
  RunData data{.state = run.at("state").get<std::string>(),
               .error = run.contains("error") ? text_of(run.at("error")) : "",
               .started = run.at("started").get<std::string>(),
               .command = run.at("command").get<std::string>(),
               .ranks = run.at("world_size").get<int>()};
  for (const auto& [name, value] : run.items()) {
    const bool is_shown_elsewhere = name == "epochs" || name == "command" || name == "state" ||
                                    name == "error" || name == "started" || name == "profile";
    if (!is_shown_elsewhere && !value.is_null()) data.configuration.emplace_back(name, text_of(value));
  }
  for (const RecordJson& epoch : run.at("epochs")) data.epochs.push_back(epoch_of(epoch));
  return data;
}

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

const std::vector<std::string>& phase_names() {
  static const std::vector<std::string> names = {"data",          "forward",   "backward",
                                                 "communication", "optimizer", "other"};
  return names;
}

RunData read_run_data(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "run.json";
  std::ifstream stream(file);
  if (!stream) {
    throw DataError(str(folder.string(),
                        " has no run.json: give the folder that `lockstep train --out` has written"));
  }
  RunData data;
  try {
    data = data_of(RecordJson::parse(stream));
  } catch (const RecordJson::exception& error) {
    throw DataError(str(file.string(), " is not what Lockstep writes: ", error.what()));
  }
  data.name = std::filesystem::path(folder / ".").lexically_normal().parent_path().filename().string();
  if (!data.epochs.empty()) data.facts = read_run_facts(folder);
  std::error_code ignored;
  if (std::filesystem::exists(folder / "trace.json", ignored)) {
    data.trace = read_traced_run(folder / "trace.json");
  }
  data.picture = bytes_of(folder / "reconstructions.png");
  return data;
}

}  // namespace lockstep::html
