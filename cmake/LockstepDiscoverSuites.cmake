# A script that runs after a test program has been linked. It writes the file that lists the program's suites for
# ctest, one entry per suite. GoogleTest's own module makes an entry, and thus a process, for each test.
# Variables: PROGRAM, PREFIX, FILE, FOLDER, LIMIT (seconds for each test), LABELS, ENVIRONMENT, LONG (suites whose label
# is `all` instead), SERIAL (true if no other test may run beside these).
cmake_minimum_required(VERSION 3.24)
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed RESULT_VARIABLE status TIMEOUT 300)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests ended with ${status}")
endif()
# Semicolons and brackets would be list syntax. The text after # is a parameter's value and can have any form.
string(REGEX REPLACE "#[^\n]*" "" listed "${listed}")
string(REGEX REPLACE "\n" ";" lines "${listed}")
set(entries "")
set(unknown "${LONG}")  # suites of LONG that the program does not have
set(suite "")
set(tests 0)
macro(add_entry)
  if(suite AND tests GREATER 0)
    math(EXPR timeout "${LIMIT} * ${tests}")
    set(label "${LABELS}")
    if(suite IN_LIST LONG)
      set(label all)
      list(REMOVE_ITEM unknown "${suite}")
    endif()
    string(APPEND entries
           "add_test([==[${PREFIX}${suite}]==] [==[${PROGRAM}]==] [==[--suite=${suite}]==] --limit=${LIMIT})\n"
           "set_tests_properties([==[${PREFIX}${suite}]==] PROPERTIES WORKING_DIRECTORY [==[${FOLDER}]==]"
           " TIMEOUT ${timeout} SKIP_RETURN_CODE 77 RUN_SERIAL ${SERIAL} LABELS [==[${label}]==] ENVIRONMENT [==[${ENVIRONMENT}]==])\n")
  endif()
endmacro()
foreach(line ${lines})
  if(line MATCHES "^([^ ].*)\\.[ ]*$")
    add_entry()
    set(suite ${CMAKE_MATCH_1})
    set(tests 0)
  elseif(line MATCHES "^  [^ ]" AND NOT line MATCHES "^  DISABLED_")
    math(EXPR tests "${tests} + 1")
  endif()
endforeach()
add_entry()
if(unknown)
  message(FATAL_ERROR "${PROGRAM} has no suite ${unknown}, which its LONG names")
endif()
file(WRITE ${FILE} "${entries}")
