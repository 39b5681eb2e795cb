# lockstep_module(TARGET): what the modules that lockstep/core/module_file.h locates have in common. Their names and folders are
# those under which dlopen() looks for them, in a build tree and when installed. A module's static libraries, such as
# lockstep::core, and its types stay its own (module_names.map).
function(lockstep_module target)
  set(exported ${PROJECT_SOURCE_DIR}/cmake/module_names.map)
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX ".so"
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} LINK_DEPENDS ${exported})
  target_link_options(${target} PRIVATE -Wl,--version-script=${exported})
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
endfunction()
