# shunt_spdlog: spdlog and its fmt as headers only. The imported targets of the distributions would link
# libspdlog.so and libfmt.so, which the machine that loads the product need not have.
include_guard(GLOBAL)
find_package(spdlog REQUIRED) # finds fmt too where the distribution's spdlog uses an external one

add_library(shunt_spdlog INTERFACE)
target_compile_definitions(shunt_spdlog INTERFACE FMT_HEADER_ONLY=1)
foreach(_package spdlog::spdlog_header_only fmt::fmt-header-only)
  if(TARGET ${_package})
    # Read here: an imported target is not visible in every folder that uses shunt_spdlog.
    get_target_property(_include ${_package} INTERFACE_INCLUDE_DIRECTORIES)
    target_include_directories(shunt_spdlog SYSTEM INTERFACE ${_include})
  endif()
endforeach()
get_target_property(_definitions spdlog::spdlog_header_only INTERFACE_COMPILE_DEFINITIONS)
if(_definitions)
  target_compile_definitions(shunt_spdlog INTERFACE ${_definitions})
endif()
