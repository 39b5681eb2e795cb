// Collectives of float32 between the processes of one host, started by mpirun: a peer of `lockstep
// bench comm`.
//
// Usage: mpicc -O3 comm_mpi.c calls_mpi.c -o comm_openmpi         (Open MPI's mpicc, or Intel
// MPI's)
//        mpicxx -O3 ... calls_oneccl.cpp -lccl -o comm_oneccl      (comm_mpi.c compiled by mpicc)
//        mpirun -n 2 --bind-to none ./comm_openmpi [--collectives all_reduce,...]
//               [--sizes 4096,...] [--calls 200] [--seconds 2]
//
// The timed calls are linked in (comm_calls.h). Rank r runs on core r modulo the number of cores.
// Each call is timed separately: the send buffer is rewritten, the ranks meet, every rank times the
// call, and the slowest rank's time counts; for send_recv (rank 0 to rank 1) the receiver's time
// counts. A size is in bytes of the larger buffer, as in nccl-tests. A row ends after --calls or
// --seconds, but not before 5 calls. Results are checked after each call. Rank 0 prints JSON rows
// like comm_gloo.py.
#define _GNU_SOURCE
#include <getopt.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm_calls.h"

enum { kWarmUpCalls = 3, kMinimumCalls = 5, kMostNames = 32 };

static const char* const kCollectives[] = {"all_reduce", "broadcast",  "reduce_scatter",
                                           "all_gather", "all_to_all", "send_recv"};
enum { kCollectiveCount = 6 };

typedef struct {
  _Alignas(64) atomic_long value;
} Line;

// Memory shared by all ranks: an arrival counter per rank, and the call at which to stop.
typedef struct {
  Line* lines;
  long meetings;
  bool yields;
} Board;

static int rank, ranks;

static void fail(const char* text, const char* what) {
  fprintf(stderr, "error: %s: %s\n", text, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

// Called before MPI_Init, so that the library's own memory is first touched on the right core.
static int pin_to_core(void) {
  cpu_set_t allowed, one;
  sched_getaffinity(0, sizeof allowed, &allowed);
  const int cores = CPU_COUNT(&allowed);
  const char* text = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  if (text == NULL) text = getenv("MPI_LOCALRANKID");  // set by Intel MPI
  if (text == NULL) return cores;
  int skip = atoi(text) % cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    break;
  }
  return cores;
}

static Board make_board(int cores) {
  Line* lines;
  MPI_Win window;  // freed by MPI_Finalize
  MPI_Win_allocate_shared(rank == 0 ? (MPI_Aint)((size_t)(ranks + 1) * sizeof(Line)) : 0, 1,
                          MPI_INFO_NULL, MPI_COMM_WORLD, &lines, &window);
  MPI_Aint size;
  int unit;
  MPI_Win_shared_query(window, 0, &size, &unit, &lines);
  if (rank == 0) memset((void*)lines, 0, (size_t)size);
  MPI_Barrier(MPI_COMM_WORLD);
  return (Board){lines, 0, ranks > cores};
}

// Ranks meet through flags, so that they start a fraction of a microsecond apart. With more ranks
// than cores, a waiting rank must not hold a core that others need.
static void meet(Board* board) {
  ++board->meetings;
  atomic_store_explicit(&board->lines[rank].value, board->meetings, memory_order_release);
  for (int other = 0; other < ranks; ++other) {
    while (atomic_load_explicit(&board->lines[other].value, memory_order_acquire) <
           board->meetings) {
      if (board->yields) sched_yield();
    }
  }
}

static void fill_sent(const CollectiveCall* op, int call) {
  const int count = op->collective == kAllGather ? op->elements / ranks : op->elements;
  for (int i = 0; i < count; ++i) op->whole[i] = (float)(call + rank);
}

// Every rank sends its rank plus the number of the call. The last received element shows the sum.
static void check(const CollectiveCall* op, int call) {
  const int sum = ranks * call + ranks * (ranks - 1) / 2, last = op->elements - 1;
  float got = op->other[last], want = (float)(call + ranks - 1);
  if (op->collective == kAllReduce) got = op->whole[last], want = (float)sum;
  if (op->collective == kReduceScatter)
    got = op->other[op->elements / ranks - 1], want = (float)sum;
  if (op->collective == kBroadcast || (op->collective == kSendRecv && rank == 1))
    got = op->whole[last], want = (float)call;
  if (op->collective == kSendRecv && rank != 1) return;
  if (got != want) fail("wrong result", kCollectives[op->collective]);
}

// Returns the number of timed calls, whose durations on this rank are in `times`.
static int measure(const CollectiveCall* op, Board* board, int calls, double seconds,
                   double* times) {
  atomic_long* stop = &board->lines[ranks].value;
  if (rank == 0) atomic_store(stop, calls);
  const double deadline = now_us() + seconds * 1e6;
  for (int call = -kWarmUpCalls; call < calls; ++call) {
    fill_sent(op, call);
    // The other ranks read it after they have met rank 0.
    if (rank == 0 && call >= kMinimumCalls && now_us() > deadline) atomic_store(stop, call);
    meet(board);
    if (call >= atomic_load(stop)) return call;
    const double begin = now_us();
    call_collective(op);
    const double end = now_us();
    if (call >= 0) times[call] = end - begin;
    check(op, call);
  }
  return calls;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void print_row(const CollectiveCall* op, double* times, int calls, bool first) {
  qsort(times, (size_t)calls, sizeof(double), ascending);
  const double median = (times[(calls - 1) / 2] + times[calls / 2]) / 2;
  const double bytes = 4.0 * op->elements, bandwidth = bytes / median / 1e3;
  // The bus bandwidth of nccl-tests' PERFORMANCE.md.
  double factor = (ranks - 1.0) / ranks;
  if (op->collective == kAllReduce) factor *= 2;
  if (op->collective == kBroadcast || op->collective == kSendRecv) factor = 1;
  const bool in_place = op->collective == kAllReduce || op->collective == kBroadcast;
  printf(
      "%s\n  {\"collective\": \"%s\", \"algorithm\": \"default\", \"backend\": \"%s\", "
      "\"ranks\": %d, \"dtype\": \"float32\", \"bytes\": %.0f, \"in_place\": %s, "
      "\"symmetric\": false, \"median_us\": %.3f, \"min_us\": %.3f, \"max_us\": %.3f, "
      "\"algbw_gbps\": %.4f, \"busbw_gbps\": %.4f}",
      first ? "" : ",", kCollectives[op->collective], kBackend, ranks, bytes,
      in_place ? "true" : "false", median, times[0], times[calls - 1], bandwidth,
      bandwidth * factor);
  fflush(stdout);
}

static void run(Collective collective, long bytes, Board* board, int most_calls, double seconds,
                bool first) {
  const bool whole =
      collective == kAllReduce || collective == kBroadcast || collective == kSendRecv;
  const long parts = bytes / 4 / ranks > 1 ? bytes / 4 / ranks : 1;
  CollectiveCall op = {collective, rank, ranks, (int)(whole ? bytes / 4 : parts * ranks),
                       NULL,       NULL};
  op.whole = calloc((size_t)op.elements, sizeof(float));
  op.other = calloc((size_t)op.elements, sizeof(float));
  double* times = calloc((size_t)most_calls, sizeof(double));
  double* slowest = calloc((size_t)most_calls, sizeof(double));
  if (!op.whole || !op.other || !times || !slowest) fail("out of memory", kCollectives[collective]);
  const int calls = measure(&op, board, most_calls, seconds, times);
  if (collective == kSendRecv && rank != 1) memset(times, 0, (size_t)most_calls * sizeof(double));
  MPI_Reduce(times, slowest, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) print_row(&op, slowest, calls, first);
  free(op.whole);
  free(op.other);
  free(times);
  free(slowest);
}

static Collective collective_named(const char* name) {
  for (int i = 0; i < kCollectiveCount; ++i)
    if (strcmp(name, kCollectives[i]) == 0) return (Collective)i;
  fail("unknown collective", name);
  return kAllReduce;
}

static int split(char* text, char** words) {
  int count = 0;
  for (char* word = strtok(text, ","); word && count < kMostNames; word = strtok(NULL, ","))
    words[count++] = word;
  return count;
}

int main(int argc, char** argv) {
  char all[] = "all_reduce,broadcast,reduce_scatter,all_gather,all_to_all,send_recv";
  char usual_sizes[] = "4096,1048576,26214400";
  char *collectives = all, *sizes = usual_sizes, *names[kMostNames], *bytes[kMostNames];
  int calls = 200;
  double seconds = 2;

  const int cores = pin_to_core();
  int level;
  MPI_Init_thread(&argc, &argv, kThreadLevel, &level);
  if (level < kThreadLevel) fail("this MPI does not allow as many threads", kBackend);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const struct option options[] = {{"collectives", required_argument, NULL, 'c'},
                                   {"sizes", required_argument, NULL, 'b'},
                                   {"calls", required_argument, NULL, 'n'},
                                   {"seconds", required_argument, NULL, 's'},
                                   {NULL, 0, NULL, 0}};
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (option == 'c')
      collectives = optarg;
    else if (option == 'b')
      sizes = optarg;
    else if (option == 'n')
      calls = atoi(optarg);
    else if (option == 's')
      seconds = atof(optarg);
    else
      fail("unknown option", "see the head of comm_mpi.c");
  }
  if (ranks < 2 || calls < kMinimumCalls)
    fail("too few", "at least 2 ranks and 5 calls are needed");

  begin_calls(rank, ranks);
  Board board = make_board(cores);
  const int name_count = split(collectives, names), size_count = split(sizes, bytes);
  if (rank == 0) printf("[");
  for (int i = 0; i < name_count; ++i) {
    for (int j = 0; j < size_count; ++j) {
      if (atol(bytes[j]) < 4) fail("a size must be 4 bytes or more", bytes[j]);
      run(collective_named(names[i]), atol(bytes[j]), &board, calls, seconds, i + j == 0);
    }
  }
  if (rank == 0) printf("\n]\n");
  end_calls();
  MPI_Finalize();
  return 0;
}
