// Reads the records of a .wandb file, independently of the code that writes them.
#pragma once

#include <gtest/gtest.h>
#include <libdeflate.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep::testing_support {

inline constexpr std::size_t kWandbFileBlock = 32768;

/// Reads the records according to LevelDB's description of its log format. Stops if the file ends
/// within a record.
inline std::vector<std::string> wandb_records(const std::string& file, std::size_t begin = 7) {
  std::vector<std::string> records;
  std::string open;
  bool inside = false;  // within a record that consists of several pieces
  for (std::size_t at = begin; at < file.size();) {
    const std::size_t room = kWandbFileBlock - at % kWandbFileBlock;
    if (room < 7) {
      EXPECT_EQ(file.substr(at, room), std::string(std::min(room, file.size() - at), '\0'));
      at += room;
      continue;
    }
    if (at + 7 > file.size()) break;
    std::uint32_t crc = 0;
    std::uint16_t length = 0;
    std::memcpy(&crc, file.data() + at, 4);
    std::memcpy(&length, file.data() + at + 4, 2);
    const int type = file[at + 6];
    EXPECT_LE(7U + length, room) << "a piece crosses a block";
    if (at + 7 + length > file.size()) break;
    EXPECT_EQ(crc, libdeflate_crc32(0, file.data() + at + 6, 1U + length)) << "at byte " << at;
    EXPECT_EQ(inside, type == 3 || type == 4) << "at byte " << at;
    inside = type == 2 || type == 3;
    open += file.substr(at + 7, length);
    if (type == 1 || type == 4) {
      records.push_back(open);
      open.clear();
    }
    at += 7U + length;
  }
  return records;
}

}  // namespace lockstep::testing_support
