// An unguessable secret for one job.
#pragma once

#include <string>

namespace lockstep::launch {

/// 64 hexadecimal digits from the kernel's random numbers. Throws an Error if it provides none.
std::string random_secret();

}  // namespace lockstep::launch
