# `make package`: CPack packs what `cmake --install` installs, as a relocatable .tar.gz and as a .deb.
#
# Neither contains LibTorch, which is a gigabyte with CUDA and which users already have. Their LibTorch becomes the link
# PREFIX/lib/lockstep/libtorch, which `lockstep-link-libtorch` makes; the program, lockstepConfig.cmake and lockstep.pc look
# there. cmake/package_paths.cmake writes that path into the files of the package, in place of the build machine's.
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR Lockstep)
set(CPACK_PACKAGE_CONTACT "The Lockstep developers <lockstep@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_FILE_NAME "lockstep-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/package)
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_BINARY_DIR}/package_paths.cmake)
configure_file(${CMAKE_CURRENT_LIST_DIR}/package_paths.cmake ${PROJECT_BINARY_DIR}/package_paths.cmake @ONLY)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# dpkg-shlibdeps finds the libraries that the program and the shared library load. With our static libraries, a user's
# program also links to libraries from the development packages below.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${LOCKSTEP_TORCH_LIBRARY_DIR})
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "g++")
if(NOT LOCKSTEP_SHARED)
  string(APPEND CPACK_DEBIAN_PACKAGE_RECOMMENDS ", libdeflate-dev, libhwy-dev, libisal-dev, libjpeg-dev, libpng-dev, libssl-dev, zlib1g-dev")
endif()
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, pkg-config, python3")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Distributed training for LibTorch in C++
 Data, model and pipeline parallel training of torch::nn models on the cores,
 GPUs and hosts that there are: the lockstep program, the library and its headers.
 LibTorch itself is not in this package: lockstep-link-libtorch names yours.")
include(CPack)
