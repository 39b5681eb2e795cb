// All that a training program needs: process groups, distributed data-parallel models, pipelines of stages,
// optimizers, data, and the parts of a training loop.
#pragma once

#include <lockstep/core/cpp20.h>

#if LOCKSTEP_HAS_CPP20

#include <lockstep/comm/process_group.h>
#include <lockstep/core/error.h>
#include <lockstep/data/batch_sampler.h>
#include <lockstep/data/check_images.h>
#include <lockstep/data/cifar10.h>
#include <lockstep/data/cifar100.h>
#include <lockstep/data/data_partitioner.h>
#include <lockstep/data/image_folder.h>
#include <lockstep/data/loader.h>
#include <lockstep/data/mnist.h>
#include <lockstep/data/pack_images.h>
#include <lockstep/data/packed_images.h>
#include <lockstep/data/random_sampler.h>
#include <lockstep/data/random_split.h>
#include <lockstep/data/sample_dataset.h>
#include <lockstep/data/sampler.h>
#include <lockstep/data/sampler_cursor.h>
#include <lockstep/data/tensor_dataset.h>
#include <lockstep/data/torch_data_sampler.h>
#include <lockstep/data/weighted_sampler.h>
#include <lockstep/export/onnx_export.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/grad_scaler.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/parameter_groups.h>
#include <lockstep/parallel/comm_hooks/default_hooks.h>
#include <lockstep/parallel/comm_hooks/post_local_sgd.h>
#include <lockstep/parallel/comm_hooks/power_sgd.h>
#include <lockstep/parallel/data_parallel.h>
#include <lockstep/parallel/device_mesh.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/join.h>
#include <lockstep/parallel/model_parallel.h>
#include <lockstep/parallel/pipeline/balance.h>
#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <lockstep/train/checkpoint.h>
#include <lockstep/train/global_modes.h>
#include <lockstep/train/metric.h>
#include <lockstep/train/metrics.h>
#include <lockstep/train/model_ema.h>
#include <lockstep/train/plateau.h>
#include <lockstep/train/precision.h>
#include <lockstep/train/pretrained.h>
#include <lockstep/train/schedule.h>
#include <lockstep/train/standard_metrics.h>
#include <lockstep/train/state_dict.h>
#include <lockstep/train/state_dict_file.h>
#include <lockstep/train/step_seed.h>
#include <lockstep/train/sum_metric.h>
#include <lockstep/train/summarize.h>

#endif
