# What the benchmark's worker links to: the driver by the toolkit's stub, NCCL by the file that lies nearest
# to nccl.h. Neither leaves a search path that would win over LD_LIBRARY_PATH, so the same program runs on
# another NCCL or on the emulated ones.
find_library(SHUNT_CUDA_STUB cuda
  HINTS ${SHUNT_CUDA_HOME} ${SHUNT_CUDA_HOME}/targets/x86_64-linux ${SHUNT_CUDA_HOME}/targets/sbsa-linux
  PATH_SUFFIXES lib64/stubs lib/stubs stubs lib64 lib)
if(NOT SHUNT_CUDA_STUB)
  message(FATAL_ERROR "libcuda.so (the toolkit's stub) not found: set SHUNT_CUDA_STUB")
endif()
add_library(shunt_link_cuda INTERFACE)
# By folder and name: CMake would put a full path's folder into the RUNPATH.
get_filename_component(_stub_dir ${SHUNT_CUDA_STUB} DIRECTORY)
target_link_options(shunt_link_cuda INTERFACE -L${_stub_dir})
target_link_libraries(shunt_link_cuda INTERFACE -lcuda)

# The NCCL wheel holds libnccl.so.2 and no libnccl.so.
find_file(SHUNT_NCCL_LIBRARY NAMES libnccl.so.2 libnccl.so
  HINTS ${SHUNT_NCCL_INCLUDE}/.. ENV NCCL_HOME ${SHUNT_CUDA_HOME}
  PATHS /usr /usr/local
  PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE}
  DOC "NCCL to link the benchmark to; at run time LD_LIBRARY_PATH decides")
add_library(shunt_link_nccl INTERFACE)
if(SHUNT_NCCL_LIBRARY)
  target_link_libraries(shunt_link_nccl INTERFACE ${SHUNT_NCCL_LIBRARY})
  # RUNPATH, never RPATH: that one would win over LD_LIBRARY_PATH.
  target_link_options(shunt_link_nccl INTERFACE -Wl,--enable-new-dtags)
  message(STATUS "the benchmark links to ${SHUNT_NCCL_LIBRARY}")
elseif(SHUNT_EMULATOR)
  target_link_libraries(shunt_link_nccl INTERFACE emulated_nccl)
  message(STATUS "no libnccl.so.2 found: the benchmark links to the emulated one")
else()
  message(FATAL_ERROR "libnccl.so.2 not found near ${SHUNT_NCCL_INCLUDE}: set SHUNT_NCCL_LIBRARY")
endif()
