# lockstep_test(NAME [TORCH header] SOURCES file... LIBRARIES target... [LABEL label] [TIMEOUT seconds])
#
# One GoogleTest program tests_NAME per room and tier; every TEST in it is a ctest entry with that
# one label (default: NAME). Groups that fail on purpose leave their last operations in the build.
include(GoogleTest)
find_package(GTest REQUIRED)

# Names of tests under a sanitizer begin with it ("thread:core.…"): `make test-all` runs all trees at once.
set(_lockstep_test_prefix "")
if(LOCKSTEP_SANITIZE)
  string(REGEX REPLACE ",.*" ":" _lockstep_test_prefix "${LOCKSTEP_SANITIZE},")
endif()

function(lockstep_test name)
  cmake_parse_arguments(arg "" "TORCH;LABEL;TIMEOUT" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(tests_${name} ${arg_SOURCES})
  set_target_properties(tests_${name} PROPERTIES LOCKSTEP_TEST ON)
  target_include_directories(tests_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(tests_${name} PRIVATE lockstep_flags ${arg_LIBRARIES} GTest::gmock GTest::gtest_main)
  if(arg_TORCH)
    lockstep_unite_files(tests_${name})
    lockstep_use_torch_pch(tests_${name} ${arg_TORCH})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  if(NOT arg_LABEL)
    set(arg_LABEL ${name})
  endif()
  gtest_discover_tests(tests_${name} TEST_PREFIX "${_lockstep_test_prefix}${name}." NO_PRETTY_VALUES
                       DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS ${arg_LABEL}
                       ENVIRONMENT "LOCKSTEP_FLIGHT_RECORDER=${PROJECT_BINARY_DIR}/flight")
endfunction()
