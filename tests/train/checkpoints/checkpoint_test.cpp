#include <lockstep/train/checkpoints/checkpoint.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/update_rule.h>
#include <lockstep/train/checkpoints/checkpoint_content.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <lockstep/train/checkpoints/checkpoint_space.h>
#include <lockstep/train/checkpoints/state_dict.h>
#include <tests/support/captured_log.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::train {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t width = 4) {
    linear = register_module("linear", torch::nn::Linear(3, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
  }
  torch::Tensor forward(const torch::Tensor& x) { return norm->forward(linear->forward(x)); }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

const CheckpointInfo kInfo = {.recipe = "mnist",
                              .epoch = 3,
                              .step = 7,
                              .settings = {{"seed", "18446744073709551615"}, {"lr", "0.1"}}};

const SgdOptions kMomentum = {.lr = 0.1, .momentum = 0.9};

void train_a_little(Net& net, Optimizer& optimizer) {
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    net->forward(torch::randn({8, 3})).square().sum().backward();
    optimizer.step();
  }
}

template <class Error>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// The file as a program without checksums writes it.
std::string without_checksums(std::string text) {
  for (auto found = text.find("lockstep.xxh3"); found != std::string::npos;
       found = text.find("lockstep.xxh3", found)) {
    text.replace(found, 8, "somebody");
  }
  return text;
}

class Checkpoint : public ::testing::Test {
 protected:
  Checkpoint() : optimizer(*net, kMomentum) {}

  lockstep::testing_support::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "checkpoint.safetensors";
  Net net;
  Optimizer optimizer;
};

TEST_F(Checkpoint, BringsBackEveryBit) {
  train_a_little(net, optimizer);
  save_checkpoint(path, *net, optimizer.state(), kInfo);
  Net other;
  Optimizer other_optimizer(*other, kMomentum);
  const CheckpointInfo info = load_checkpoint(path, *other, other_optimizer.state(), "mnist");
  EXPECT_EQ(info.recipe, kInfo.recipe);
  EXPECT_EQ(info.epoch, kInfo.epoch);
  EXPECT_EQ(info.step, kInfo.step);
  EXPECT_EQ(info.settings, kInfo.settings);
  const auto expected = state_dict(*net);
  const auto got = state_dict(*other);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(got[i].second.equal(expected[i].second)) << got[i].first;
  }
  const NamedTensors momentum = optimizer.state();
  for (std::size_t i = 0; i < momentum.size(); ++i) {
    EXPECT_TRUE(other_optimizer.state()[i].second.equal(momentum[i].second)) << momentum[i].first;
  }
}

// A file holds memory only, and a lazy conjugate or negative is a mark on other memory.
TEST_F(Checkpoint, HoldsTheValuesOfComplexAndLazyTensors) {
  const torch::Tensor numbers = torch::arange(1, 7, torch::kFloat32);
  const torch::Tensor waves = torch::complex(numbers.sin(), numbers.cos());
  torch::nn::Module module, other;
  module.register_parameter("weight", waves * 2);
  module.register_buffer("conjugate", waves.conj());
  module.register_buffer("negative", at::_neg_view(numbers.clone()));
  ASSERT_TRUE(module.named_buffers()["conjugate"].is_conj());
  ASSERT_TRUE(module.named_buffers()["negative"].is_neg());
  other.register_parameter("weight", torch::zeros_like(waves));
  other.register_buffer("conjugate", torch::zeros_like(waves));
  other.register_buffer("negative", torch::zeros_like(numbers));
  save_checkpoint(path, module, {}, kInfo);
  load_checkpoint(path, other, {}, "");
  EXPECT_TRUE(other.named_parameters()["weight"].equal(waves * 2));
  EXPECT_TRUE(
      other.named_buffers()["conjugate"].equal(torch::complex(numbers.sin(), -numbers.cos())));
  EXPECT_TRUE(other.named_buffers()["negative"].equal(-numbers));
}

TEST_F(Checkpoint, NamesATensorThatNoFileCanHold) {
  const std::pair<torch::Tensor, const char*> cases[] = {
      {torch::zeros({2}, torch::kComplexDouble), "cannot store 'odd' of type ComplexDouble"},
      {torch::eye(2).to_sparse(), "cannot store 'odd', which is SparseCPUFloatType"}};
  for (const auto& [tensor, expected] : cases) {
    torch::nn::Module module;
    module.register_buffer("odd", tensor);
    EXPECT_THAT(message_of<CheckpointError>([&] { save_checkpoint(path, module, {}, kInfo); }),
                HasSubstr(expected));
  }
  torch::nn::Module module;
  module.register_buffer("caf\xe9", torch::ones({2}));
  EXPECT_THAT(message_of<CheckpointError>([&] { save_checkpoint(path, module, {}, kInfo); }),
              HasSubstr("cannot store 'caf\\xe9', whose name is not UTF-8"));
}

TEST_F(Checkpoint, KeepsAConvolutionsMemoryFormat) {
  torch::nn::Conv2d conv(3, 4, 3);
  conv->weight.set_data(conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  Optimizer sgd(*conv, SgdOptions{});
  save_checkpoint(path, *conv, sgd.state(), kInfo);
  torch::nn::Conv2d other(3, 4, 3);
  Optimizer other_sgd(*other, SgdOptions{});
  load_checkpoint(path, *other, other_sgd.state(), "");
  EXPECT_TRUE(other->weight.equal(conv->weight));
}

TEST_F(Checkpoint, NamesWhatDoesNotFit) {
  save_checkpoint(path, *net, optimizer.state(), kInfo);
  Net wide(5);
  Optimizer wide_optimizer(*wide, kMomentum);
  EXPECT_THAT(message_of<CheckpointError>(
                  [&] { load_checkpoint(path, *wide, wide_optimizer.state(), "mnist"); }),
              HasSubstr("linear.weight has shape [4, 3], the model expects [5, 3]"));
  Optimizer no_momentum(*net, SgdOptions{});
  EXPECT_THAT(
      message_of<CheckpointError>(
          [&] { load_checkpoint(path, *net, no_momentum.state(), "mnist"); }),
      HasSubstr("was written by a run whose optimizer remembers momentum_buffer, this run's "
                "remembers nothing; give the same TrainerOptions::optimizer and its options, or "
                "another CheckpointOptions::directory"));
  torch::nn::Sequential bare{torch::nn::Linear(3, 4)};
  Optimizer bare_optimizer(*bare, kMomentum);
  EXPECT_THAT(message_of<CheckpointError>(
                  [&] { load_checkpoint(path, *bare, bare_optimizer.state(), ""); }),
              HasSubstr("0.weight is missing"));
  EXPECT_THAT(message_of<CheckpointError>(
                  [&] { load_checkpoint(path, *net, optimizer.state(), "cifar10"); }),
              HasSubstr("was written for recipe 'mnist', not for 'cifar10'; give another file or "
                        "CheckpointOptions::directory"));
}

TEST_F(Checkpoint, ChangesNothingWhenItDoesNotFit) {
  Net other;
  Optimizer other_optimizer(*other, kMomentum);
  save_checkpoint(path, *net, optimizer.state(), kInfo);
  const auto before = other->linear->weight.detach().clone();
  EXPECT_THROW(load_checkpoint(path, *other, other_optimizer.state(), "cifar10"), CheckpointError);
  Optimizer no_momentum(*other, SgdOptions{});
  EXPECT_THROW(load_checkpoint(path, *other, no_momentum.state(), ""), CheckpointError);
  EXPECT_TRUE(other->linear->weight.equal(before));
}

TEST_F(Checkpoint, SaysThatItIsOfAnotherOptimizer) {
  Optimizer adam(*net, AdamOptions{.amsgrad = true});
  save_checkpoint(path, *net, adam.state(), kInfo);
  EXPECT_THAT(
      message_of<CheckpointError>([&] { load_checkpoint(path, *net, optimizer.state(), ""); }),
      HasSubstr("remembers exp_avg, exp_avg_sq, max_exp_avg_sq, step, this run's remembers "
                "momentum_buffer; give"));
}

// The first file format supported only SGD, whose momentum had another name.
TEST_F(Checkpoint, ReadsTheFirstFormat) {
  train_a_little(net, optimizer);
  TensorViews views;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    views[name] = {
        .dtype = tensor.scalar_type() == torch::kInt64 ? "I64" : "F32",
        .shape = tensor.sizes().vec(),
        .bytes = {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
  };
  for (const auto& [name, tensor] : state_dict(*net)) add(name, tensor);
  for (const auto& [name, tensor] : optimizer.state()) {
    add("optimizer.momentum." + name.substr(std::string("momentum_buffer.").size()), tensor);
  }
  write_safetensors(path, views,
                    {{"format", "lockstep checkpoint 1"},
                     {"recipe", "mnist"},
                     {"epoch", "2"},
                     {"step", "0"},
                     {"lr", "0.1"}});
  Net other;
  Optimizer other_optimizer(*other, kMomentum);
  const auto info = load_checkpoint(path, *other, other_optimizer.state(), "mnist");
  EXPECT_TRUE(other->linear->weight.equal(net->linear->weight));
  EXPECT_TRUE(other_optimizer.state()[0].second.equal(optimizer.state()[0].second));
  // Without these, resuming would report that the two runs' settings differ.
  EXPECT_EQ(info.settings.at("optimizer"), "sgd");
  EXPECT_EQ(info.settings.at("gradient_clip_norm"), "none");
}

TEST_F(Checkpoint, TakesALossScalerWhereBothHaveOne) {
  const auto scale = torch::full({}, 8.0F);
  NamedTensors with = optimizer.state();
  with.emplace_back("grad_scaler.scale", scale);
  save_checkpoint(path, *net, with, kInfo);
  scale.fill_(1);
  load_checkpoint(path, *net, optimizer.state(), "");
  EXPECT_EQ(scale.item<float>(), 1);
  load_checkpoint(path, *net, with, "");
  EXPECT_EQ(scale.item<float>(), 8);
  save_checkpoint(path, *net, optimizer.state(), kInfo);
  scale.fill_(1);
  load_checkpoint(path, *net, with, "");
  EXPECT_EQ(scale.item<float>(), 1);
}

TEST_F(Checkpoint, RefusesAPlaceThatNoRunReaches) {
  const std::pair<std::int64_t, std::int64_t> places[] = {
      {0, 0}, {-1, 0}, {std::int64_t{1} << 62, 0}, {1, -1}, {1, std::int64_t{1} << 62}};
  for (const auto& [epoch, step] : places) {
    save_checkpoint(path, *net, optimizer.state(),
                    {.recipe = "mnist", .epoch = epoch, .step = step});
    EXPECT_THAT(
        message_of<CheckpointError>([&] { load_checkpoint(path, *net, optimizer.state(), ""); }),
        HasSubstr("is not a place in a run"))
        << epoch << " " << step;
  }
  constexpr std::int64_t kMost = 1'000'000'001;
  for (const bool is_too_many : {false, true}) {
    const std::int64_t more = is_too_many ? 1 : 0;
    for (const auto& [epoch, step] : {std::pair(kMost + more, kMost), {kMost, kMost + more}}) {
      save_checkpoint(path, *net, optimizer.state(),
                      {.recipe = "mnist", .epoch = epoch, .step = step});
      EXPECT_EQ(message_of<CheckpointError>([&] {
                  load_checkpoint(path, *net, optimizer.state(), "");
                }) == "nothing was thrown",
                !is_too_many)
          << epoch << " " << step;
    }
  }
}

TEST_F(Checkpoint, RefusesAMissingADamagedAndAForeignFile) {
  EXPECT_THAT(
      message_of<CheckpointError>([&] { load_checkpoint(path, *net, optimizer.state(), ""); }),
      HasSubstr("there is no checkpoint"));
  save_checkpoint(path, *net, optimizer.state(), kInfo);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THROW(load_checkpoint(path, *net, optimizer.state(), ""), CheckpointError);
  write_file_atomically(path, std::string("\x02\0\0\0\0\0\0\0{}", 10));
  EXPECT_THAT(
      message_of<CheckpointError>([&] { load_checkpoint(path, *net, optimizer.state(), ""); }),
      HasSubstr("is not a checkpoint of Lockstep"));
}

TEST_F(Checkpoint, RefusesDamagedWeights) {
  using lockstep::testing_support::read_text;
  train_a_little(net, optimizer);
  save_checkpoint(path, *net, optimizer.state(), kInfo);
  const std::string whole = read_text(path);
  const auto at = whole.size() - 8;  // in the tensor data, at the end of the file
  for (const auto& [name, piece] :
       {std::pair{"a bit", std::string(1, static_cast<char>(whole[at] ^ 0x10))},
        std::pair{"zeros", std::string(8, '\0')}}) {
    std::string damaged = whole;
    damaged.replace(at, piece.size(), piece);
    write_file_atomically(path, damaged);
    EXPECT_THAT(
        message_of<CheckpointError>([&] { load_checkpoint(path, *net, optimizer.state(), ""); }),
        HasSubstr("is damaged: its checksum is"))
        << name;
  }
}

TEST_F(Checkpoint, WarnsOfAFileWithoutChecksumsAndOfADivergedRun) {
  using lockstep::testing_support::read_text;
  const testing_support::CapturedLog log;
  {
    torch::NoGradGuard no_grad;
    net->linear->bias[2] = std::numeric_limits<float>::quiet_NaN();
  }
  save_checkpoint(path, *net, optimizer.state(), kInfo);
  Net other;
  Optimizer other_optimizer(*other, kMomentum);
  load_checkpoint(path, *other, other_optimizer.state(), "");
  EXPECT_TRUE(other->linear->bias[2].isnan().item<bool>()) << "what was saved is what is loaded";
  ASSERT_EQ(log.lines().size(), 1U);
  EXPECT_THAT(log.lines()[0], HasSubstr("linear.bias holds values that are not finite"));

  write_file_atomically(path, without_checksums(read_text(path)));
  load_checkpoint(path, *other, other_optimizer.state(), "");
  ASSERT_EQ(log.lines().size(), 3U);
  EXPECT_THAT(log.lines()[1], HasSubstr("has no checksums, so damage to it would go unnoticed"));
}

// The state of the optimizer and the weights are two files, of which either may be damaged.
TEST_F(Checkpoint, SaysThatARunDivergedOnlyIfAllFilesHaveChecksums) {
  {
    torch::NoGradGuard no_grad;
    net->linear->bias[2] = std::numeric_limits<float>::quiet_NaN();
  }
  const CheckpointContent content(state_dict(*net), optimizer.state(), kInfo);
  const std::filesystem::path folder = directory.path() / "step-00000007";
  std::filesystem::create_directory(folder);
  for (const std::string plain : {"", kModelFile, kTrainingFile}) {
    for (const CheckpointFile& file : content.files()) {
      std::string text;
      for (const auto& piece : file.pieces) {
        text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      }
      write_file_atomically(folder / file.name,
                            file.name == plain ? without_checksums(text) : text);
    }
    const testing_support::CapturedLog log;
    load_checkpoint(folder, *net, optimizer.state(), "", FolderCheck::kVerified);
    ASSERT_THAT(log.lines(), SizeIs(plain.empty() ? 1 : 2)) << plain;
    EXPECT_THAT(
        log.lines().back(),
        EndsWith(plain.empty() ? "linear.bias holds values that are not finite: the run had "
                                 "diverged when it was saved"
                               : "linear.bias holds values that are not finite"))
        << plain;
  }
}

// What is not trained may be infinite on purpose. LibTorch has no isfinite() for types of 8 bits.
TEST_F(Checkpoint, WarnsOfFrozenParametersOnlyIfTheyAreNan) {
  for (const bool is_nan : {false, true}) {
    const double value = is_nan ? std::numeric_limits<double>::quiet_NaN()
                                : -std::numeric_limits<double>::infinity();
    torch::nn::Module module;
    module.register_parameter("bytes", torch::ones({3}).to(torch::kFloat8_e4m3fn),
                              /*requires_grad=*/false);
    module.register_parameter("mask", torch::full({3}, value, torch::kFloat32),
                              /*requires_grad=*/false);
    save_checkpoint(path, module, {}, kInfo);
    const testing_support::CapturedLog log;
    load_checkpoint(path, module, {}, "");
    ASSERT_THAT(log.lines(), SizeIs(is_nan ? 1 : 0));
    if (is_nan) {
      EXPECT_THAT(log.lines()[0], HasSubstr("mask holds values that are not finite"));
    }
  }
}

TEST_F(Checkpoint, RefusesMetadataThatNameNoPlace) {
  const std::string format(kCheckpointFormat);
  const std::pair<SafetensorsMetadata, const char*> cases[] = {
      {{{"format", format}, {"epoch", "3x"}, {"step", "0"}},
       ": metadata epoch is not a whole number"},
      {{{"format", format}, {"epoch", " 3"}, {"step", "0"}},
       ": metadata epoch is not a whole number"},
      {{{"format", format}, {"epoch", "3"}, {"step", ""}}, ": metadata step is not a whole number"},
      {{{"format", format}, {"step", "0"}}, ": metadata epoch is missing"},
      {{{"format", format}, {"epoch", "3"}}, ": metadata step is missing"},
      {{{"epoch", "3"}, {"step", "0"}}, " is not a checkpoint of Lockstep: its format is missing"},
      {{{"format", "lockstep checkpoint 3"}, {"epoch", "3"}, {"step", "0"}},
       " is not a checkpoint of Lockstep: its format is lockstep checkpoint 3"}};
  for (const auto& [metadata, expected] : cases) {
    write_safetensors(path, {}, metadata);
    EXPECT_EQ(
        message_of<CheckpointError>([&] { load_checkpoint(path, *net, optimizer.state(), ""); }),
        path.string() + expected);
  }
}

// This happens when a module of two nets is saved with one optimizer for each.
TEST_F(Checkpoint, RefusesTwoTensorsOfOneName) {
  Net other;
  Optimizer other_optimizer(*other, kMomentum);
  NamedTensors both = optimizer.state();
  for (const auto& entry : other_optimizer.state()) both.push_back(entry);
  const auto refusal = ::testing::AllOf(
      HasSubstr(path.string()),
      HasSubstr("two tensors have the name 'optimizer.momentum_buffer.linear.weight'; give each"));
  EXPECT_THAT(message_of<CheckpointError>([&] { save_checkpoint(path, *net, both, kInfo); }),
              refusal);
  EXPECT_FALSE(std::filesystem::exists(path));
  save_checkpoint(path, *net, optimizer.state(), kInfo);
  EXPECT_THAT(message_of<CheckpointError>([&] { load_checkpoint(path, *net, both, ""); }), refusal);

  // A submodule may have the name that prefixes the optimizer's state.
  struct Odd : torch::nn::Module {
    torch::nn::Linear part = register_module("optimizer", torch::nn::Linear(1, 1));
  } odd;
  const NamedTensors state = {{"weight", torch::zeros({1, 1})}};
  EXPECT_THAT(message_of<CheckpointError>([&] { save_checkpoint(path, odd, state, kInfo); }),
              HasSubstr("two tensors have the name 'optimizer.weight'"));
}

// Names from the root of the whole module keep the two apart.
TEST_F(Checkpoint, HoldsTwoNetsAndTheirOptimizers) {
  struct PairImpl : torch::nn::Module {
    Net first = register_module("first", Net());
    Net second = register_module("second", Net());
  };
  struct Nets {
    Nets() {
      for (const auto& [name, parameter] : trainable_parameters(*pair)) {
        (name.starts_with("first.") ? of_first : of_second).emplace_back(name, parameter);
      }
    }
    std::shared_ptr<PairImpl> pair = std::make_shared<PairImpl>();
    NamedTensors of_first = {};
    NamedTensors of_second = {};
  };
  const auto both_states = [](const Optimizer& first, const Optimizer& second) {
    NamedTensors state = first.state();
    for (const auto& entry : second.state()) state.push_back(entry);
    return state;
  };
  Nets nets;
  Optimizer first(nets.of_first, kMomentum);
  Optimizer second(nets.of_second, AdamOptions{});
  train_a_little(nets.pair->first, first);
  train_a_little(nets.pair->second, second);
  const NamedTensors saved = both_states(first, second);
  save_checkpoint(path, *nets.pair, saved, kInfo);

  Nets others;
  Optimizer other_first(others.of_first, kMomentum);
  Optimizer other_second(others.of_second, AdamOptions{});
  const NamedTensors loaded = both_states(other_first, other_second);
  load_checkpoint(path, *others.pair, loaded, "");
  ASSERT_EQ(loaded.size(), saved.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_TRUE(loaded[i].second.equal(saved[i].second)) << saved[i].first;
  }
  EXPECT_TRUE(others.pair->second->linear->weight.equal(nets.pair->second->linear->weight));
}

TEST_F(Checkpoint, SaysWhyItCannotBeWritten) {
  const auto blocked = directory.path() / "file" / "checkpoint.safetensors";
  std::ofstream(directory.path() / "file") << "not a folder";
  EXPECT_THAT(message_of<CheckpointError>(
                  [&] { save_checkpoint(blocked, *net, optimizer.state(), kInfo); }),
              HasSubstr("cannot write the checkpoint: "));
}

TEST_F(Checkpoint, KnowsItsSizeBeforeItIsWritten) {
  Net wide(1000);
  const OptimizerOptions kinds[] = {SgdOptions{}, kMomentum, AdamOptions{.amsgrad = true}};
  for (const OptimizerOptions& options : kinds) {
    Optimizer each(*wide, options);
    save_checkpoint(path, *wide, each.state(), kInfo);
    const auto written = std::filesystem::file_size(path);
    const auto expected = checkpoint_bytes(*wide, *detail::make_update_rule(options));
    EXPECT_GE(expected, written);
    EXPECT_LT(expected, written + 8192);
  }
  // A tied weight is saved under both names, its optimizer state once.
  struct Tied : torch::nn::Module {
    Tied() : first(register_module("first", torch::nn::Linear(100, 100))) {
      register_parameter("again", first->weight);
    }
    torch::nn::Linear first;
  } tied;
  Optimizer each(tied, AdamOptions{});
  save_checkpoint(path, tied, each.state(), kInfo);
  EXPECT_LT(checkpoint_bytes(tied, *detail::make_update_rule(AdamOptions{})),
            std::filesystem::file_size(path) + 8192);
}

TEST_F(Checkpoint, NeedsRoomForThoseToCome) {
  const auto available = std::filesystem::space(directory.path()).available;
  const std::uint64_t most_of_it = available / 4 * 3;  // other programs also write to this disk
  require_checkpoint_space(directory.path(), most_of_it, 0);
  require_checkpoint_space(directory.path(), most_of_it, 1);
  EXPECT_THAT(message_of<CheckpointError>(
                  [&] { require_checkpoint_space(directory.path(), most_of_it, 2); }),
              ::testing::ContainsRegex("cannot keep checkpoints in .*: it needs room for 2 more of "
                                       "about .* MB each, but its file system has .* MB free"));
  const std::string text = message_of<CheckpointError>(
      [&] { require_checkpoint_space(directory.path(), 3'000'000'000'000'000'000, 8); });
  EXPECT_THAT(text, HasSubstr("cannot keep checkpoints in " + directory.path().string() +
                              ": it needs room for 8 more of about 3000000000000.00 MB each, but "
                              "its file system has "));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("has 3000000000000.00 MB")));
  EXPECT_THAT(text, HasSubstr(" MB free; free some, keep fewer or choose another folder"));
  require_checkpoint_space(directory.path(), std::uint64_t{1} << 61, -1);
  require_checkpoint_space("/nowhere/at/all", most_of_it, 2);
  require_checkpoint_space("/proc", most_of_it, 2);  // reports no size at all
}

TEST(StateDict, LoadsByNameInAnyOrder) {
  Net net;
  Net other;
  StateDict state = state_dict(*net);
  std::reverse(state.begin(), state.end());
  load_state_dict(*other, state);
  EXPECT_TRUE(other->linear->weight.equal(net->linear->weight));
  state.back().second = torch::zeros({4, 3}, torch::kFloat64);
  EXPECT_THAT(message_of<CheckpointError>([&] { load_state_dict(*other, state); }),
              HasSubstr("linear.weight is Double, the model expects Float"));
}

// Whatever does not fit, nothing is copied.
TEST(StateDict, NamesWhatDoesNotFit) {
  Net net;
  const StateDict state = state_dict(*net);
  const torch::Tensor before = net->linear->weight.detach().clone();
  const auto message = [&](const std::function<void(StateDict&)>& change) {
    StateDict changed;
    for (const auto& [name, tensor] : state) changed.emplace_back(name, tensor.clone().fill_(3));
    change(changed);
    return message_of<CheckpointError>([&] { load_state_dict(*net, changed); });
  };
  ASSERT_EQ(state.back().first, "norm.num_batches_tracked");
  EXPECT_EQ(message([](StateDict& s) { s.pop_back(); }),
            "load_state_dict: norm.num_batches_tracked is missing");
  EXPECT_EQ(message([](StateDict& s) { s.emplace_back("more", torch::zeros({1})); }),
            "load_state_dict: more is not in the model");
  EXPECT_EQ(message([](StateDict& s) { s.back().second = torch::zeros({1}, torch::kInt64); }),
            "load_state_dict: norm.num_batches_tracked has shape [1], the model expects []");
  EXPECT_EQ(message([](StateDict& s) { s.back().second = torch::zeros({}); }),
            "load_state_dict: norm.num_batches_tracked is Float, the model expects Long");
  EXPECT_TRUE(net->linear->weight.equal(before));
}

}  // namespace
}  // namespace lockstep::train
