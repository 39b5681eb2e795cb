// All that a training program needs: process groups, distributed data-parallel models, and data.
#pragma once

#include <lockstep/comm/process_group.h>
#include <lockstep/core/error.h>
#include <lockstep/data/loader.h>
#include <lockstep/data/sampler.h>
#include <lockstep/parallel/distributed_data_parallel.h>
