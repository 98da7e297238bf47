# Finds nvcc, the CUDA headers and nccl.h; resolves SHUNT_CUDA_ARCHS to SHUNT_ARCHS.
# The host code uses headers only; nothing of the toolkit is linked.
find_program(SHUNT_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT SHUNT_NVCC)
  message(FATAL_ERROR "nvcc not found: install the CUDA toolkit or set CUDA_HOME")
endif()
get_filename_component(SHUNT_NVCC_REAL ${SHUNT_NVCC} REALPATH)
get_filename_component(SHUNT_CUDA_HOME ${SHUNT_NVCC_REAL}/../.. ABSOLUTE)
find_path(SHUNT_CUDA_INCLUDE cuda.h HINTS ${SHUNT_CUDA_HOME}/include
          ${SHUNT_CUDA_HOME}/targets/x86_64-linux/include /usr/local/cuda/include)
find_path(SHUNT_NCCL_INCLUDE nccl.h HINTS ${SHUNT_CUDA_INCLUDE} ENV NCCL_HOME PATH_SUFFIXES include)
if(NOT SHUNT_NCCL_INCLUDE)
  # The wheel that PyTorch installs brings the header along.
  execute_process(
    COMMAND python3 -c "import nvidia.nccl as n; print(list(n.__path__)[0] + '/include')"
    OUTPUT_VARIABLE _wheel OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_path(SHUNT_NCCL_INCLUDE nccl.h HINTS ${_wheel})
endif()
if(NOT SHUNT_CUDA_INCLUDE OR NOT SHUNT_NCCL_INCLUDE)
  message(FATAL_ERROR "cuda.h or nccl.h not found (${SHUNT_CUDA_INCLUDE}, ${SHUNT_NCCL_INCLUDE}): "
                      "set SHUNT_CUDA_INCLUDE and SHUNT_NCCL_INCLUDE, or NCCL_HOME")
endif()
add_library(shunt_toolkit INTERFACE)
target_include_directories(shunt_toolkit SYSTEM INTERFACE ${SHUNT_NCCL_INCLUDE} ${SHUNT_CUDA_INCLUDE})

execute_process(COMMAND ${SHUNT_NVCC} --version OUTPUT_VARIABLE _version)
string(REGEX REPLACE ".*release ([0-9]+)[.]([0-9]+).*" "\\1.\\2" SHUNT_CUDA_VERSION "${_version}")
# The smallest mode asks for a driver of CUDA 12.4 or newer, which older toolkits' code does not.
if(SHUNT_CUDA_VERSION VERSION_GREATER_EQUAL 13)
  set(SHUNT_COMPRESSION --compress-mode=size)
else()
  set(SHUNT_COMPRESSION -Xfatbin=-compress-all)
endif()

execute_process(COMMAND ${SHUNT_NVCC} --list-gpu-arch OUTPUT_VARIABLE _known)
string(REGEX MATCHALL "[0-9]+" _known "${_known}")
if(SHUNT_CUDA_ARCHS STREQUAL "all")
  set(SHUNT_ARCHS ${_known})
elseif(SHUNT_CUDA_ARCHS STREQUAL "auto")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE _caps ERROR_QUIET RESULT_VARIABLE _rc)
  set(SHUNT_ARCHS "")
  if(_rc EQUAL 0)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" _caps "${_caps}")
    list(REMOVE_DUPLICATES _caps)
    string(REPLACE "." "" SHUNT_ARCHS "${_caps}")
  endif()
  if(NOT SHUNT_ARCHS)
    set(SHUNT_ARCHS 90)
  endif()
else()
  set(SHUNT_ARCHS ${SHUNT_CUDA_ARCHS})
endif()
list(GET SHUNT_ARCHS -1 SHUNT_NEWEST_ARCH)
message(STATUS "nvcc ${SHUNT_CUDA_VERSION} (${SHUNT_NVCC}), nccl.h in ${SHUNT_NCCL_INCLUDE}, architectures ${SHUNT_ARCHS}")
