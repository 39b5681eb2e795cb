# lockstep_test(NAME [TORCH] SOURCES file... LIBRARIES target... [LABEL label] [TIMEOUT seconds])
#
# Defines one GoogleTest program tests_NAME per room and tier. Its entries in ctest have one label (default: NAME).
# An entry is a TEST or, with TORCH, a test suite, which also runs each test in a process of its own
# (tests/support/suite_main.cpp). TIMEOUT applies to each test and ends tests that hang: it is several times the
# test's duration on a busy machine. Groups that fail on purpose leave records of their last operations in the build
# folder.
include(GoogleTest)
find_package(GTest REQUIRED)

# Names of tests under a sanitizer begin with its name ("thread:core.…"), because `make test-all` runs all trees at once.
set(_lockstep_test_prefix "")
if(LOCKSTEP_SANITIZE)
  string(REGEX REPLACE ",.*" ":" _lockstep_test_prefix "${LOCKSTEP_SANITIZE},")
endif()

if(LOCKSTEP_WITH_TORCH)
  add_library(lockstep_suite_main STATIC ${PROJECT_SOURCE_DIR}/tests/support/suite_main.cpp)
  target_link_libraries(lockstep_suite_main PRIVATE lockstep_flags PUBLIC GTest::gmock)
endif()

function(lockstep_test name)
  cmake_parse_arguments(arg "TORCH" "LABEL;TIMEOUT" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(tests_${name} ${arg_SOURCES})
  set_target_properties(tests_${name} PROPERTIES LOCKSTEP_COLD ON)
  target_include_directories(tests_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(tests_${name} PRIVATE lockstep_flags ${arg_LIBRARIES} GTest::gmock)
  lockstep_unite_files(tests_${name} 12)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 180)
  endif()
  if(NOT arg_LABEL)
    set(arg_LABEL ${name})
  endif()
  set(environment "LOCKSTEP_FLIGHT_RECORDER=${PROJECT_BINARY_DIR}/flight")
  set(prefix "${_lockstep_test_prefix}${name}.")
  if(arg_TORCH)
    lockstep_use_torch_pch(tests_${name})
    target_link_libraries(tests_${name} PRIVATE lockstep_suite_main)
    set(entries ${CMAKE_CURRENT_BINARY_DIR}/tests_${name}_suites.cmake)
    add_custom_command(TARGET tests_${name} POST_BUILD
      COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:tests_${name}> -D PREFIX=${prefix} -D FILE=${entries}
              -D FOLDER=${CMAKE_CURRENT_BINARY_DIR} -D LIMIT=${arg_TIMEOUT} -D LABELS=${arg_LABEL}
              -D ENVIRONMENT=${environment} -P ${PROJECT_SOURCE_DIR}/cmake/LockstepDiscoverSuites.cmake
      BYPRODUCTS ${entries} VERBATIM)
    # If the program has not been built, ctest lists it as a test that cannot run.
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/tests_${name}_include.cmake
         "if(EXISTS [==[${entries}]==])\n  include([==[${entries}]==])\nelse()\n"
         "  add_test(tests_${name}_NOT_BUILT tests_${name}_NOT_BUILT)\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/tests_${name}_include.cmake)
  else()
    target_link_libraries(tests_${name} PRIVATE GTest::gtest_main)
    gtest_discover_tests(tests_${name} TEST_PREFIX "${prefix}" NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS ${arg_LABEL} ENVIRONMENT "${environment}")
  endif()
endfunction()
