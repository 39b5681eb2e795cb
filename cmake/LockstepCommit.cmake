# lockstep_commit_source(VARIABLE): a source that defines build_commit() (lockstep/cli/build_commit.h), which is
# written again when the checkout moves to another commit.
#
# Git appends a line to logs/HEAD whenever HEAD moves. A source tree without Git (a tarball) has the commit in COMMIT, or
# none.
set(_lockstep_commit_script ${CMAKE_CURRENT_LIST_DIR}/write_commit.cmake)
function(lockstep_commit_source variable)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/build_commit.cpp)
  find_package(Git QUIET)
  set(log "")
  if(GIT_EXECUTABLE)
    execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --git-path logs/HEAD WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                    OUTPUT_VARIABLE log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(log)
    cmake_path(ABSOLUTE_PATH log BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  endif()
  if(NOT EXISTS "${log}")
    set(log "")
  endif()
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -D SOURCE_DIR=${PROJECT_SOURCE_DIR} -D GIT=${GIT_EXECUTABLE} -D OUTPUT=${source}
            -P ${_lockstep_commit_script}
    DEPENDS ${log} ${_lockstep_commit_script} COMMENT "" VERBATIM)
  set(${variable} ${source} PARENT_SCOPE)
endfunction()
