# Cases 27 to 43: life and death, shapes and numbers, hosts and identity.
shunt_add_case_program(shapes_cases
  shapes_test.cc shapes_numbers_test.cc shapes_counters_test.cc shapes_data.cc
  ${PROJECT_SOURCE_DIR}/test/protocol/numbers.cc)
shunt_add_case(shapes_cases case_31_shapes_of_two_ranks 120 2)
shunt_add_case(shapes_cases case_31_shapes_of_three_ranks 120 2)
shunt_add_case(shapes_cases case_31_alignment_differs_between_ranks 60 2)
shunt_add_case(shapes_cases case_32_cap_is_in_bytes 60 2)
shunt_add_case(shapes_cases case_33_odd_values 60 2)
shunt_add_case(shapes_cases case_34_same_bits_and_small_errors 60 2)
shunt_add_case(shapes_cases case_34_row_does_not_depend_on_its_batch 60 2)
shunt_add_case(shapes_cases case_35_integers_and_what_is_not_ours 60 2)
shunt_add_case(shapes_cases case_36_numbers_of_ranks 120 2)
shunt_add_case(shapes_cases case_37_counters_and_cap_line 60 2)
shunt_add_case(shapes_cases case_37_default_caps 60 2)

add_library(cases_life_lines SHARED life_lines.c)
add_library(cases_slow_adoption SHARED slow_adoption.cc)
target_link_libraries(cases_slow_adoption PRIVATE ${CMAKE_DL_LIBS})
shunt_add_case_program(life_cases life_test.cc life_process_test.cc life_abort_test.cc
  life_forwarded_test.cc life_kill_job.cc life_kill_test.cc life_kill_nightly_test.cc)
target_compile_definitions(life_cases PRIVATE CASES_LIFE_LINES="$<TARGET_FILE:cases_life_lines>"
  CASES_SLOW_ADOPTION="$<TARGET_FILE:cases_slow_adoption>")
add_dependencies(life_cases cases_life_lines cases_slow_adoption)
shunt_add_case(life_cases case_29_thousand_communicators 110 2)
shunt_add_case(life_cases case_29_destroyed_in_any_order 60 2)
shunt_add_case(life_cases case_29_skew_no_use_no_destroy 60)
shunt_add_case(life_cases case_29_a_peer_that_has_finished_may_be_gone 60)
shunt_add_case(life_cases case_10_forked_while_the_engine_is_busy 60)
shunt_add_case(life_cases case_29_destroyed_without_a_context 60 2)
shunt_add_case(life_cases case_29_dump_by_signal 60)
shunt_add_case(life_cases case_29_reset_under_a_communicator 60 2)
shunt_add_case(life_cases case_30_address_is_reused 60 2)
shunt_add_case(life_cases case_28_abort_from_a_second_thread 60)
shunt_add_case(life_cases case_43_nothing_is_stored_after_an_abort 60)
shunt_add_case(life_cases case_27_killed_inside_preparing 180 2)
shunt_add_case(life_cases case_27_killed_before_preparing 60)
shunt_add_case(life_cases case_27_killed_in_mid_call 120 2)
shunt_add_case(life_cases case_27_killed_and_nobody_aborts 90)
shunt_add_case(life_cases case_27_killed_in_a_forwarded_call 60)
shunt_add_case(life_cases case_27_killed_in_a_forwarded_call_and_nobody_asks 60)
# 22 places, 20 times each: half an hour on two cores.
add_custom_target(killed_nightly COMMAND life_cases killed_nightly USES_TERMINAL VERBATIM)

add_library(cases_boot_id SHARED hosts_boot_id.c)
target_link_libraries(cases_boot_id PRIVATE ${CMAKE_DL_LIBS})
add_library(cases_set_uid SHARED set_uid.cc)
target_link_libraries(cases_set_uid PRIVATE ${CMAKE_DL_LIBS})
shunt_add_case_program(hosts_cases hosts_test.cc hosts_marker_test.cc)
target_compile_definitions(hosts_cases PRIVATE CASES_BOOT_ID="$<TARGET_FILE:cases_boot_id>"
  CASES_SET_UID="$<TARGET_FILE:cases_set_uid>")
add_dependencies(hosts_cases cases_boot_id cases_set_uid)
shunt_add_case(hosts_cases case_39_two_hosts 60 2)
shunt_add_case(hosts_cases case_01_not_probed_again_after_a_reset 60 2)
shunt_add_case(hosts_cases case_01_no_cache_no_marker 60 2)
shunt_add_case(hosts_cases case_40_visible_devices 60 2)
shunt_add_case(hosts_cases case_41_settings_differ 60 2)
shunt_add_case(hosts_cases case_41_set_uid_programs 60 2)
shunt_add_case(hosts_cases case_42_message_between_calls 60)
shunt_add_case(hosts_cases case_42_grouped_on_one_rank_only 60)

shunt_add_catch_test(probe_marker_test probe_marker_test.cc
  ${PROJECT_SOURCE_DIR}/shim/engine/probe_marker.cc ${PROJECT_SOURCE_DIR}/shim/engine/log.cc)
target_link_libraries(probe_marker_test PRIVATE shunt_plan shunt_profile_place shunt_spdlog)
set_tests_properties(probe_marker_test PROPERTIES LABELS "unit;cases" TIMEOUT 60)

# Pure decisions: no processes.
shunt_add_catch_test(hosts_verdict_test hosts_verdict_test.cc
  ${PROJECT_SOURCE_DIR}/shim/engine/verdict.cc
  ${PROJECT_SOURCE_DIR}/shim/engine/judge_times.cc)
target_link_libraries(hosts_verdict_test PRIVATE shunt_plan)
set_tests_properties(hosts_verdict_test PROPERTIES LABELS "unit;cases" TIMEOUT 60)
