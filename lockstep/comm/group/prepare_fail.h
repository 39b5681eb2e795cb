// Private to prepare*.cpp: reports wrong arguments.
#pragma once

#include <lockstep/comm/group/prepare.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {

template <class... Values>
void Prepare::fail(const char* call, const Values&... values) const {
  throw ConfigError(lockstep::str("rank ", options_.world_rank, ": ", call, ": ", values...));
}

}  // namespace lockstep::comm
