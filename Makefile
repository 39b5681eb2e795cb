# `make help` lists the commands. Each bootstraps the machine (tools/bootstrap.sh) and builds first.
PRESET ?= release
PROGRAM = build/$(PRESET)/lockstep
CORES := $(shell nproc)
# A translation unit with LibTorch takes up to 2 GB.
MEMORY_JOBS := $(shell awk '/MemAvailable/ {print int($$2 / 2000000) + 1}' /proc/meminfo)
JOBS ?= $(shell echo $$(($(CORES) < $(MEMORY_JOBS) ? $(CORES) : $(MEMORY_JOBS))))
RANKS ?= $(shell echo $$(($(CORES) < 2 ? $(CORES) : 2)))
# Tests wait for each other and for deadlines: with two at a time, two processors would be idle for a third of the time,
# with three for a sixth, and with four for a twentieth.
RUN_TESTS = tools/run_tests.py
TEST_JOBS ?= $(shell echo $$(($(CORES) < 2 ? $(CORES) : 4)))
# Bootstraps take turns, because test-all starts some in the background. The lock is closed in what they start, so that
# a daemon of an installed package cannot keep it.
BOOTSTRAP = flock --close tools/bootstrap.sh tools/bootstrap.sh
# A variable, because make would execute a line of a recipe that contains MAKE even with -n.
MAKE_CUDA = $(MAKE) --no-print-directory cuda
# Unoptimised, in few translation units, and with the GPU tests only, because the check asks just whether everything
# compiles and links. clang++ precompiles LibTorch's headers in a third of g++'s time, and shows that our sources compile
# with both compilers.
CUDA_CHECK = -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DLOCKSTEP_GPU_KIT=ON -DLOCKSTEP_PYTHON_PACKAGE=OFF
CUDA_TORCH = "$$(realpath .deps/cuda/lib/python3*/site-packages/torch)"
# What the kit is built with must be the version of the machine where it runs.
KIT_TORCH = "$$(realpath $${LOCKSTEP_KIT_TORCH:-.deps/kit/lib/python3*/site-packages/torch})"
PYTHON = .deps/venv/bin/python
# Number of files per translation unit of a room, used when a tree is configured for the first time: 1 is best for
# work on single files, and 0 (all files of the room) for a build from scratch. test-exhaustive compiles each file of a
# room by itself, which reveals a missing #include.
UNITY_FILES ?= 0

.DEFAULT_GOAL := help
.PHONY: help train test test-all test-exhaustive build bench table format clean bootstrap layers sanitizers \
        cuda cuda-packages wheels-ahead dali package gpu gpu-kit

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  ARGS=...        options of the train program, as in: make train ARGS='--max-epochs 10'"
	@echo "  LOCKSTEP_DATA   folder that holds mnist/ and cifar10/, if you have them already"
	@echo "  PRESET          release or debug ($(PRESET))"
	@echo "  LOCKSTEP_SKIP_CUDA=1  test-all without the CUDA build, DALI and their gigabytes of wheels"
	@echo "  LOCKSTEP_KIT_TORCH  the torch package that gpu-kit builds with (default: version 2.11.0, which it installs)"
	@echo "  JOBS, RANKS     parallel compilations ($(JOBS)), processes that train ($(RANKS))"

train: build/$(PRESET)/build.ninja  ## train MNIST on two processes
	cmake --build build/$(PRESET) -j $(JOBS) --target lockstep_cli
	$(PROGRAM) train mnist --strategy ddp --nproc-per-node $(RANKS) $(ARGS)

# `make test test-all` runs the tests once: test-all's single run contains those of test, and the checks of `layers`.
# Everything is then built first, because two builds must not run in one folder at the same time.
ifneq ($(filter test-all,$(MAKECMDGOALS)),)
test: wheels-ahead build
else
test: build/$(PRESET)/build.ninja layers  ## build the program and its tests, and run them
	cmake --build build/$(PRESET) -j $(JOBS) --target test_programs
	$(RUN_TESTS) build/$(PRESET) -j $(TEST_JOBS) --label-exclude '^all$$'
endif

# No test needs the CUDA build, which therefore runs in the time that the tests leave the processors idle. Its output is
# shown only if it fails.
test-all: test sanitizers cuda-packages  ## also sanitizers, the CUDA build, torchvision, timm, DALI and the installed package
	$(BOOTSTRAP) clang
	$(BOOTSTRAP) oracles
	$(BOOTSTRAP) zoo
	-$(BOOTSTRAP) slurm
	-$(BOOTSTRAP) chromium
	@mkdir -p build/all
	@printf 'subdirs("%s")\n' $(CURDIR)/build/$(PRESET) $(CURDIR)/build/asan $(CURDIR)/build/tsan \
	  >build/all/CTestTestfile.cmake
	$(RUN_TESTS) build/all --beside "$(MAKE_CUDA)" build/cuda.log -j $(TEST_JOBS)

# Downloads and unpacks, beside the first compilation, the wheels that the tests need later. Debian's packages could replace
# headers that the compiler reads. A failure is in the log, and is reported when test-all installs the same wheels in the
# foreground, which takes no time if they are installed.
wheels-ahead: bootstrap
	@for what in $(if $(filter 1,$(LOCKSTEP_SKIP_CUDA)),,cuda) oracles zoo; do $(BOOTSTRAP) $$what; done \
	  </dev/null >.deps/ahead.log 2>&1 &

# ctest's time limits for these tests suit the smaller selection that runs without LOCKSTEP_EXHAUSTIVE.
EXHAUSTIVE_TEST = LOCKSTEP_EXHAUSTIVE=1 build/$(PRESET)/tests_$(1) --suite=$(2) --limit=7200
test-exhaustive: build/$(PRESET)/build.ninja  ## compare every strategy and schedule with one process on four nets; export 4.4 GB
	xargs -d '\n' cmake --preset debug -B build/single-files -DLOCKSTEP_UNITY_FILES=1 <.deps/cmake-args
	cmake --build build/single-files -j $(JOBS) --target lockstep_cli
	xargs -d '\n' cmake --preset debug -DLOCKSTEP_UNITY_FILES=0 <.deps/cmake-args
	cmake --build build/debug -j $(JOBS) --target test_programs
	$(RUN_TESTS) build/debug -j $(TEST_JOBS) --label-exclude '^all$$'
	cmake --build build/$(PRESET) -j $(JOBS) --target lockstep_cli tests_train tests_train_resnets export_models ddp_steps \
	  interrupted_loop program_steps
	$(call EXHAUSTIVE_TEST,train,StrategyEquality)
	$(call EXHAUSTIVE_TEST,train_resnets,StrategyEqualityResNet)
	$(PYTHON) tests/oracle/compare.py build/$(PRESET)/ddp_steps --model resnet18 --engines shm,c10d --steps 20
	LOCKSTEP_EXHAUSTIVE=1 ctest --test-dir build/$(PRESET) --output-on-failure --no-tests=error -R '^install.strict_g'
	$(PYTHON) tests/system/interruptions.py $(PROGRAM) build/$(PRESET)/interrupted_loop
	$(BOOTSTRAP) zoo
	$(PYTHON) tests/oracle/program_zoo.py build/$(PRESET)/program_steps || [ $$? -eq 77 ]
	$(BOOTSTRAP) oracles
	$(PYTHON) tests/cli/bench/table_peers_test.py $(PROGRAM) 1,2 || [ $$? -eq 77 ]
	$(PYTHON) tests/export/onnx_oracle.py build/$(PRESET)/export_models nets
	$(PYTHON) tests/export/onnx_oracle.py build/$(PRESET)/export_models types
	$(PYTHON) tests/export/onnx_oracle.py build/$(PRESET)/export_models large || [ $$? -eq 77 ]

build: build/$(PRESET)/build.ninja  ## build the program, the tests and the benchmarks
	cmake --build build/$(PRESET) -j $(JOBS)

bench: build  ## compare one epoch of MNIST with PyTorch's script
	$(BOOTSTRAP) cuda
	$(PYTHON) benchmarks/mnist_epoch.py --program $(PROGRAM) --peer-python .deps/cuda/bin/python $(ARGS)

table: build  ## time epochs by strategy and ranks, with PyTorch's programs in turn (LOCKSTEP_DATA)
	$(BOOTSTRAP) peers
	$(PYTHON) benchmarks/tables.py --program $(PROGRAM) --peer-python .deps/peers/bin/python $(ARGS)

package: build/$(PRESET)/build.ninja  ## pack the program, the library and its headers as a .tar.gz and a .deb
	cmake --build build/$(PRESET) -j $(JOBS) --target lockstep_installed
	cpack --config build/$(PRESET)/CPackConfig.cmake

format: bootstrap  ## format all sources
	git ls-files '*.h' '*.cpp' '*.cu' | xargs .deps/venv/bin/clang-format -i

clean:  ## remove what was built (keeps .deps/, which holds LibTorch)
	rm -rf build

# DALI is installed before the build is configured, which finds it through .deps/cmake-args.
TESTS_WITH_DALI = $(if $(filter 1,$(LOCKSTEP_SKIP_CUDA)),,$(filter test-all,$(MAKECMDGOALS)))
bootstrap:
	@$(BOOTSTRAP) $(if $(filter dali,$(MAKECMDGOALS))$(TESTS_WITH_DALI),dali)

dali: build  ## install NVIDIA DALI, for --loader dali, and build with it

# Ninja configures again by itself when a CMake file changes. This rule does so only when LibTorch has moved. The empty
# recipe makes make check the file's time again after bootstrap, which writes the file only when it changes.
.deps/cmake-args: bootstrap
	@:
build/$(PRESET)/build.ninja: .deps/cmake-args
	xargs -d '\n' cmake --fresh -DLOCKSTEP_UNITY_FILES=$(UNITY_FILES) --preset $(PRESET) \
	  <.deps/cmake-args

layers: bootstrap
	@python3 tools/check_layers.py
	@python3 tools/check_definitions.py
	@python3 tools/check_exports.py
	@python3 tools/check_namespaces.py
	@python3 tools/check_format.py
	@python3 tools/measure_house.py --check tools/house_limits.json

# Both trees at the same time, so that a processor that one tree has no work for compiles the other.
sanitizers: bootstrap
	@mkdir -p build
	trees=; \
	for preset in asan tsan; do { \
	  unity=-DLOCKSTEP_UNITY_FILES=$(UNITY_FILES); \
	  if [ -e build/$$preset/CMakeCache.txt ]; then unity=; fi; \
	  cmake $$unity --preset $$preset >build/$$preset.log || { cat build/$$preset.log; exit 1; }; \
	  cmake --build build/$$preset -j $(JOBS); \
	} & trees="$$trees $$!"; done; \
	status=0; for tree in $$trees; do wait $$tree || status=1; done; exit $$status

# Proves that everything compiles and links against the CUDA build of LibTorch, and runs the tests of that build that need
# no GPU. This downloads some gigabytes of wheels. If they are unavailable, skip this step explicitly, with
# LOCKSTEP_SKIP_CUDA=1.
cuda: cuda-packages
ifneq ($(LOCKSTEP_SKIP_CUDA),1)
	cmake --preset cuda --fresh $(CUDA_CHECK) \
	  -DLOCKSTEP_TORCH_ROOT=$(CUDA_TORCH)
	cmake --build build/cuda -j $(JOBS)
	build/cuda/tests_gpu_libraries
endif

cuda-packages: bootstrap
ifeq ($(LOCKSTEP_SKIP_CUDA),1)
	@echo "skipped: LOCKSTEP_SKIP_CUDA is set, so NCCL is not compiled and torchvision is not compared"
else
	$(BOOTSTRAP) clang
	$(BOOTSTRAP) cuda
endif

# Runs everything that needs a GPU, in at most ten minutes; without a GPU it says what it left out. The machine with the
# GPU need not be able to build: `make gpu` uses build/gpu-kit, or unpacks build/gpu-kit.tar.xz, if either exists.
gpu:  ## run the GPU tests and benchmarks from build/gpu-kit, and write gpu-report/
	@[ -e build/gpu-kit/kit.json ] || [ -e build/gpu-kit.tar.xz ] || $(MAKE) gpu-kit
	@[ -e build/gpu-kit/kit.json ] || (cd build && python3 -m tarfile -e gpu-kit.tar.xz .)
	python3 tools/gpu/run.py --kit build/gpu-kit --output gpu-report $(ARGS)

gpu-kit: bootstrap  ## build the folder that `make gpu` runs, also for other machines
	[ -n "$${LOCKSTEP_KIT_TORCH:-}" ] || $(BOOTSTRAP) kit
	cmake --preset gpu --fresh -DLOCKSTEP_TORCH_ROOT=$(KIT_TORCH) \
	  $$(grep DALI .deps/cmake-args)
	cmake --build build/gpu -j $(JOBS)
	python3 tools/gpu/make_kit.py --build build/gpu --torch $(KIT_TORCH) --kit build/gpu-kit
