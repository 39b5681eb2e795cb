#include <lockstep/bench/loader/measured_loaders.h>

#include <filesystem>

#include <lockstep/bench/copy_bandwidth.h>
#include <lockstep/bench/trace_folder.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/file.h>
#include <lockstep/core/strings.h>
#include <lockstep/core/trace/chrome_trace.h>
#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/data/loader/loader.h>

namespace lockstep::bench {
namespace {

// A loader, and the epoch that it is in.
struct LoaderInTurn {
  Loader loader;
  std::int64_t epoch = 0;
};

// Takes batches epoch after epoch, like a trainer that needs no time.
double images_per_second(LoaderInTurn& of, double seconds) {
  Batch batch;
  std::int64_t images = 0;
  const Clock::time_point begin = Clock::now();
  while (seconds_since(begin) < seconds) {
    if (of.loader.next(batch)) {
      images += batch.size;
    } else {
      of.loader.set_epoch(++of.epoch);
    }
  }
  return static_cast<double>(images) / seconds_since(begin);
}

// Minimum number of bytes moved per image: its pixels are read once and its numbers written once. 0
// if images must be decoded.
double bytes_of_image(const ImageDataset& dataset, const Batch& batch) {
  if (dataset.is_file(0)) return 0;
  ImageReader reader;
  dataset.read(0, reader);
  const torch::Tensor image = batch.images[0];
  return static_cast<double>(reader.shape().elements()) +
         static_cast<double>(image.numel() * static_cast<std::int64_t>(image.element_size()));
}

// Stops threads that work ahead.
void rest(LoaderInTurn& of) { of.loader.set_epoch(of.epoch, of.loader.steps_per_epoch()); }

// Takes some batches while recording the loader's threads.
void trace_batches(LoaderInTurn& of, const std::filesystem::path& file) {
  constexpr int kTracedBatches = 20;
  name_thread_track("takes batches");
  start_recording();
  const Clock::time_point from = Clock::now();
  of.loader.set_epoch(++of.epoch);
  Batch batch;
  for (int i = 0; i < kTracedBatches; ++i) {
    const SpanScope scope("wait for data", "phase", i);
    if (!of.loader.next(batch)) break;
  }
  write_chrome_trace(file, {{.rank = 0, .host = host_name(), .spans = stop_recording(from)}});
  rest(of);
}

Loader make_loader(const BenchLoaderSettings& settings, LoaderEngineKind engine, int threads) {
  return Loader(settings.dataset, DistributedSampler(settings.dataset.size()),
                settings.augmentation,
                {.batch_size = settings.batch_size,
                 .threads = threads,
                 .channels_last = settings.channels_last,
                 .dtype = settings.dtype,
                 .engine = engine,
                 .device = engine == LoaderEngineKind::kCuda ? torch::kCUDA : torch::kCPU,
                 .on_corrupt_image = settings.on_corrupt_image,
                 .cpus = {}});
}

}  // namespace

std::vector<BenchLoaderRow> measure_loaders(const BenchLoaderSettings& settings) {
  std::vector<BenchLoaderRow> rows;
  std::vector<LoaderInTurn> loaders;
  for (const LoaderEngineKind engine : settings.engines) {
    for (const int threads : settings.threads) {
      rows.push_back({.engine = engine, .threads = threads});
      loaders.push_back({make_loader(settings, engine, threads)});
    }
  }
  double bytes = 0;
  for (int round = -1; round < settings.rounds; ++round) {  // round -1 fills the page cache
    for (std::size_t i = 0; i < rows.size(); ++i) {
      LoaderInTurn& one = loaders[i];
      BenchLoaderRow& row = rows[i];
      one.loader.set_epoch(++one.epoch);
      if (Batch batch; round < 0 && one.loader.next(batch)) {
        bytes = bytes_of_image(settings.dataset, batch);
      }
      const double rate = images_per_second(one, settings.seconds);
      rest(one);
      row.skipped = one.loader.skipped_images();
      if (round < 0) continue;
      row.rounds.push_back(rate);
      if (bytes == 0 || row.engine == LoaderEngineKind::kCuda) continue;  // in device memory
      row.floors.push_back(copy_bandwidth(row.threads, settings.seconds / 4) / bytes);
    }
  }
  for (std::size_t i = 0; i < rows.size() && !settings.trace.empty(); ++i) {
    trace_batches(loaders[i],
                  trace_file_of(settings.trace, str(to_string(rows[i].engine), ' ',
                                                    amount_of(rows[i].threads, "thread"))));
  }
  return rows;
}

}  // namespace lockstep::bench
