# cmake -D SOURCE_DIR=… -D GIT=… -D OUTPUT=… -P write_commit.cmake: writes the source that LockstepCommit.cmake describes.
set(commit "")
if(GIT)
  # --show-prefix is empty at the top of a repository: sources inside another project's repository have no commit.
  execute_process(COMMAND ${GIT} rev-parse --show-prefix --short=12 HEAD WORKING_DIRECTORY ${SOURCE_DIR}
                  OUTPUT_VARIABLE lines OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status ERROR_QUIET)
  if(status EQUAL 0 AND lines MATCHES "^\n?([0-9a-f]+)$")
    set(commit ${CMAKE_MATCH_1})
  endif()
endif()
if(NOT commit AND EXISTS ${SOURCE_DIR}/COMMIT)
  file(STRINGS ${SOURCE_DIR}/COMMIT commit LIMIT_COUNT 1 REGEX "^[0-9a-f]+$")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
"#include <lockstep/cli/build_commit.h>

namespace lockstep::cli {

const char* build_commit() { return \"${commit}\"; }

}  // namespace lockstep::cli
" @ONLY)
