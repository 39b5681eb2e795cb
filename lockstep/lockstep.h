// Everything that a training program needs: process groups, distributed data-parallel models,
// pipelines of stages, optimizers, data, and the parts of a training loop.
#pragma once

#include <lockstep/core/cpp20.h>

#if LOCKSTEP_HAS_CPP20

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/error.h>
#include <lockstep/data/datasets/cifar10.h>
#include <lockstep/data/datasets/cifar100.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/mnist.h>
#include <lockstep/data/datasets/packed_images.h>
#include <lockstep/data/datasets/random_split.h>
#include <lockstep/data/datasets/sample_dataset.h>
#include <lockstep/data/datasets/tensor_dataset.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/data/preparation/check_images.h>
#include <lockstep/data/preparation/pack_images.h>
#include <lockstep/data/samplers/batch_sampler.h>
#include <lockstep/data/samplers/data_partitioner.h>
#include <lockstep/data/samplers/random_sampler.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/data/samplers/sampler_cursor.h>
#include <lockstep/data/samplers/torch_data_sampler.h>
#include <lockstep/data/samplers/weighted_sampler.h>
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
#include <lockstep/parallel/mean_over_ranks.h>
#include <lockstep/parallel/model_parallel.h>
#include <lockstep/parallel/pipeline/balance.h>
#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <lockstep/program/program.h>
#include <lockstep/program/split.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/model_ema.h>
#include <lockstep/train/checkpoints/pretrained.h>
#include <lockstep/train/checkpoints/state_dict.h>
#include <lockstep/train/checkpoints/state_dict_file.h>
#include <lockstep/train/global_modes.h>
#include <lockstep/train/optimization/precision.h>
#include <lockstep/train/optimization/schedule.h>
#include <lockstep/train/optimization/step_seed.h>
#include <lockstep/train/stop_request.h>
#include <lockstep/train/task/metric.h>
#include <lockstep/train/task/metrics.h>
#include <lockstep/train/task/plateau.h>
#include <lockstep/train/task/standard_metrics.h>
#include <lockstep/train/task/sum_metric.h>
#include <lockstep/train/task/summarize.h>

#endif
