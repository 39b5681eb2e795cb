# lockstep_test(NAME [TORCH] SOURCES file... LIBRARIES target... [LABEL label] [LONG entry...] [TIMEOUT seconds]
#               [SERIAL])
#
# Defines one GoogleTest program tests_NAME per room and tier. Its entries in ctest have one label (default: NAME).
# An entry is a TEST or, with TORCH, a test suite, which also runs each test in a process of its own
# (tests/support/suite_main.cpp). The entries named by LONG take long and have the label `all`, which `make test` leaves
# to `make test-all`: name only those whose code other tests cover, too. TIMEOUT applies to each test and ends tests that
# hang: it is several times the test's duration on a busy machine. Nothing else runs beside the entries of a SERIAL
# program, which has TORCH. Groups that fail on purpose leave records of their
# last operations in the build folder.
include(GoogleTest)
find_package(GTest REQUIRED)

# What `make test` builds: the program, the Python package, and the programs of all tests without the label `all`.
add_custom_target(test_programs)

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
  cmake_parse_arguments(arg "TORCH;SERIAL" "LABEL;TIMEOUT" "SOURCES;LIBRARIES;LONG" ${ARGN})
  add_executable(tests_${name} ${arg_SOURCES})
  set_target_properties(tests_${name} PROPERTIES LOCKSTEP_OPTIMIZATION -Og)
  target_include_directories(tests_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(tests_${name} PRIVATE lockstep_flags ${arg_LIBRARIES} GTest::gmock)
  lockstep_unite_files(tests_${name} 18)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 180)
  endif()
  if(NOT arg_LABEL)
    set(arg_LABEL ${name})
  endif()
  if(NOT arg_LABEL STREQUAL all OR NOT arg_TORCH)  # ctest lists other programs even if they have not been built
    add_dependencies(test_programs tests_${name})
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
              -D "LONG=${arg_LONG}" -D SERIAL=${arg_SERIAL}
              -D ENVIRONMENT=${environment} -P ${PROJECT_SOURCE_DIR}/cmake/LockstepDiscoverSuites.cmake
      BYPRODUCTS ${entries} VERBATIM)
    # If the program has not been built, ctest lists it as a test that cannot run.
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/tests_${name}_include.cmake
         "if(EXISTS [==[${entries}]==])\n  include([==[${entries}]==])\nelse()\n"
         "  add_test(tests_${name}_NOT_BUILT tests_${name}_NOT_BUILT)\n"
         "  set_tests_properties(tests_${name}_NOT_BUILT PROPERTIES LABELS ${arg_LABEL})\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/tests_${name}_include.cmake)
  else()
    target_link_libraries(tests_${name} PRIVATE GTest::gtest_main)
    set(discovery TEST_PREFIX "${prefix}" NO_PRETTY_VALUES DISCOVERY_TIMEOUT 300)
    set(properties TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${environment}")
    set(others "*")
    if(arg_LONG)
      string(REPLACE ";" ":" long "${arg_LONG}")
      set(others "*-${long}")
      gtest_discover_tests(tests_${name} ${discovery} TEST_FILTER "${long}" PROPERTIES ${properties} LABELS all)
      foreach(test ${arg_LONG})  # a name that has become wrong must not move the test into `make test`
        add_custom_command(TARGET tests_${name} POST_BUILD VERBATIM COMMAND sh -c
          "\"$0\" --gtest_list_tests \"--gtest_filter=$1\" | grep -q '^  ' || { echo \"$0 has no test $1, which its LONG names\"; exit 1; }"
          $<TARGET_FILE:tests_${name}> ${test})
      endforeach()
    endif()
    gtest_discover_tests(tests_${name} ${discovery} TEST_FILTER "${others}" PROPERTIES ${properties} LABELS ${arg_LABEL})
  endif()
endfunction()
