# Negative controls: the kernels with one thing broken must fail in the stated way, or the simulation has no
# power to find it. The product's sources hold no switch: each control is a copy with a text replaced.

# shunt_control_edit(CONTROL FILE FROM TO): in kernels/FILE. Several edits of one control are one change.
function(shunt_control_edit control file from to)
  get_property(count GLOBAL PROPERTY shunt_edits_of_${control})
  if(NOT count)
    set(count 0)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/controls/${control}.edits.new "")
  endif()
  set(prefix ${CMAKE_CURRENT_BINARY_DIR}/controls/${control}.${count})
  foreach(which from to)
    file(WRITE ${prefix}.${which}.new "${${which}}")
    configure_file(${prefix}.${which}.new ${prefix}.${which} COPYONLY) # keeps the time of an equal file
  endforeach()
  file(APPEND ${CMAKE_CURRENT_BINARY_DIR}/controls/${control}.edits.new "${file} ${prefix}\n")
  math(EXPR count "${count} + 1")
  set_property(GLOBAL PROPERTY shunt_edits_of_${control} ${count})
  set_property(GLOBAL APPEND PROPERTY shunt_edit_files_of_${control} ${prefix}.from ${prefix}.to)
  if(file STREQUAL "protocol.h" OR file STREQUAL "launch_plan.h")
    set_property(GLOBAL PROPERTY shunt_world_sees_${control} ON)
  endif()
endfunction()

set(_kernel_sources "")
foreach(file IN ITEMS all_reduce.cuh codec.cuh datatype.h device_access.cuh host_kernels.cc
                      host_runtime.h launch_plan.cc launch_plan.h numbers.cuh protocol.h sum.cuh
                      user_buffer.cuh wait.cuh)
  list(APPEND _kernel_sources ${PROJECT_SOURCE_DIR}/kernels/${file})
endforeach()

# The program of a control, to be run by shunt_control_fails.
function(shunt_add_control control)
  set(dir ${CMAKE_CURRENT_BINARY_DIR}/controls/${control})
  configure_file(${dir}.edits.new ${dir}.edits COPYONLY)
  get_property(edits GLOBAL PROPERTY shunt_edit_files_of_${control})
  add_custom_command(
    OUTPUT ${dir}/kernels/host_kernels.cc ${dir}/kernels/launch_plan.cc
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR}/kernels -DTARGET=${dir}/kernels
            -DTABLE=${CMAKE_CURRENT_SOURCE_DIR}/small_table/all_reduce_table.h
            -DEDITS=${dir}.edits -P ${CMAKE_CURRENT_SOURCE_DIR}/substitute.cmake
    DEPENDS ${_kernel_sources} ${edits} ${dir}.edits substitute.cmake
            small_table/all_reduce_table.h
    COMMENT "Breaking the kernels: ${control}"
    VERBATIM)
  # The originals are compiled with warnings.
  set_source_files_properties(${dir}/kernels/host_kernels.cc ${dir}/kernels/launch_plan.cc
                              PROPERTIES COMPILE_OPTIONS -w)
  get_property(world_sees GLOBAL PROPERTY shunt_world_sees_${control})
  if(world_sees)
    set(world ${SHUNT_PROTOCOL_WORLD})
  else()
    set(world $<TARGET_OBJECTS:protocol_world>)
  endif()
  add_executable(protocol_control_${control} ${world}
                 ${dir}/kernels/host_kernels.cc ${dir}/kernels/launch_plan.cc)
  target_include_directories(protocol_control_${control} BEFORE PRIVATE ${dir})
  target_compile_options(protocol_control_${control} PRIVATE -O1)
  target_link_libraries(protocol_control_${control} PRIVATE protocol_machine shunt_toolkit)
endfunction()

# Passes if the control fails in the given way, at each of three bases of seeds.
function(shunt_control_fails control kind)
  foreach(base 1 100001 200001)
    set(name protocol_control_${control}_${kind}_${base})
    add_test(NAME ${name} COMMAND protocol_control_${control} --expect ${kind} --ranks 2,3,4
                                  --first-seed ${base} --seeds 10 ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS "protocol;control" TIMEOUT 60)
  endforeach()
endfunction()

include(control_list.cmake)
