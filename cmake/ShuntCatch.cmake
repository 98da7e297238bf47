# shunt_add_catch_test(NAME SOURCES...): a Catch2 program, any version from 2.13 on, registered with ctest.
# Sources include "test/catch.h". Link what else is needed to NAME afterwards.
find_package(Catch2 REQUIRED)
set(SHUNT_CATCH_MAIN_SOURCE ${PROJECT_SOURCE_DIR}/test/catch_main.cc)

# Catch2 2 is one header: its main takes ten seconds to compile, so every test shares one copy.
if(NOT TARGET Catch2::Catch2WithMain AND NOT TARGET shunt_catch_main)
  add_library(shunt_catch_main STATIC ${SHUNT_CATCH_MAIN_SOURCE})
  target_link_libraries(shunt_catch_main PUBLIC Catch2::Catch2)
endif()

# All of them, for builds that want nothing else (the asan preset).
if(NOT TARGET unit_tests)
  add_custom_target(unit_tests)
endif()

function(shunt_add_catch_test name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE shunt_warnings)
  if(TARGET Catch2::Catch2WithMain)
    target_link_libraries(${name} PRIVATE Catch2::Catch2WithMain)
  else()
    target_link_libraries(${name} PRIVATE shunt_catch_main)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS unit)
  add_dependencies(unit_tests ${name})
endfunction()
