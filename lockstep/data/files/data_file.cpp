#include <lockstep/data/files/data_file.h>

#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/gzip.h>

namespace lockstep::data {
namespace {

std::filesystem::path require_data_file(const std::filesystem::path& directory,
                                        const std::string& name) {
  if (const auto path = find_data_file(directory, name)) return *path;
  throw DataError(str("cannot find ", name, " (or ", name, ".gz) in ", directory.string()));
}

}  // namespace

std::optional<std::filesystem::path> find_data_file(const std::filesystem::path& directory,
                                                    const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    std::filesystem::path path = directory / (name + suffix);
    std::error_code ignored;  // a folder that cannot be opened counts as empty
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return std::nullopt;
}

std::filesystem::path folder_with(const std::filesystem::path& directory, const char* subfolder,
                                  const std::string& name) {
  std::error_code ignored;
  const bool below = !find_data_file(directory, name) &&
                     std::filesystem::is_directory(directory / subfolder, ignored);
  return below ? directory / subfolder : directory;
}

DataFile open_data_file(const std::filesystem::path& directory, const std::string& name,
                        std::size_t maximum_bytes) {
  const std::filesystem::path path = require_data_file(directory, name);
  auto mapped = std::make_shared<const MappedFile>(path);
  if (path.extension() == ".gz") {
    auto content = std::make_shared<const formats::ByteBuffer>(
        formats::gunzip(mapped->bytes(), maximum_bytes, path.string()));
    const auto bytes = content->bytes();
    return {path.string(), bytes, std::move(content)};
  }
  const auto bytes = mapped->bytes();
  if (bytes.size() > maximum_bytes) {
    throw DataError(str(path.string(), ": got ", bytes.size(), " bytes, at most ", maximum_bytes,
                        " are expected"));
  }
  return {path.string(), bytes, std::move(mapped)};
}

DataSize data_file_size(const std::filesystem::path& directory, const std::string& name) {
  const std::filesystem::path path = require_data_file(directory, name);
  const MappedFile file(path);
  if (path.extension() != ".gz") return {path.string(), file.bytes().size()};
  return {path.string(), formats::gzip_stated_bytes(file.bytes(), path.string())};
}

}  // namespace lockstep::data
