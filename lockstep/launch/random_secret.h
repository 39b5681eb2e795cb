// A secret that nobody can guess, for one job.
#pragma once

#include <string>

namespace lockstep {

/// 64 hexadecimal digits from the kernel's random numbers. Error where it gives none.
std::string random_secret();

}  // namespace lockstep
