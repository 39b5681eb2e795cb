// Communication hooks that keep no state between steps: the mean, a no-op, and casts to 16 bits.
//
//   ddp.register_comm_hook(lockstep::bf16_compress_hook(group));
//
// Names and results are those of torch.distributed.algorithms.ddp_comm_hooks.default_hooks.
#pragma once

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>
#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep {

/// Averages gradients over the ranks, like DistributedDataParallel without a hook.
LOCKSTEP_API CommHook all_reduce_hook(ProcessGroup group);

/// Every rank keeps its own gradients. Use it to measure a step without communication, or to reduce
/// the gradients in your own code after backward.
LOCKSTEP_API CommHook noop_hook();

/// Averages gradients over the ranks in 16 bits: half the bytes, and about 3 (float16) or 2
/// (bfloat16) decimal digits. Each gradient is rounded once, and the mean is taken in float32 and
/// rounded once, so that no sum overflows; a gradient beyond 65,504 becomes infinite in float16, as
/// in PyTorch. Over NCCL, NCCL's own 16-bit mean is used; between the hosts of "hierarchical", and
/// over Gloo from GPUs, float32 is sent. Buckets that already have the 16-bit type are averaged as
/// they are; other floating-point types are cast. Meant for networks: in shared memory the casts
/// cost more than they save. Keeps a 16-bit copy of each bucket in memory of group.allocate().
LOCKSTEP_API CommHook fp16_compress_hook(ProcessGroup group);
LOCKSTEP_API CommHook bf16_compress_hook(ProcessGroup group);

/// Runs `hook` on a copy of the bucket rounded to 16 bits (`gradients` are views of the copy), and
/// casts its result back.
LOCKSTEP_API CommHook fp16_compress_wrapper(ProcessGroup group, CommHook hook);
LOCKSTEP_API CommHook bf16_compress_wrapper(ProcessGroup group, CommHook hook);

}  // namespace lockstep
