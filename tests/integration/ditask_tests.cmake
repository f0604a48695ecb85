# Registers each test method of the scripts as a test of its own. Needs the targets ditask and
# divisi_test_packages (tests/packages).
add_dependencies(divisi_tests ditask divisi_program divisi_trial divisi_test_packages)
foreach(name ditask_test ditask_ending_test dijob_test run_test)
  set(script ${CMAKE_CURRENT_LIST_DIR}/${name}.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script})
  file(STRINGS ${script} lines REGEX "^class |^    def test_")
  foreach(line ${lines})
    if(line MATCHES "^class ([A-Za-z]+)")
      set(class ${CMAKE_MATCH_1})
    elseif(line MATCHES "def (test_([A-Za-z0-9_]+))")
      set(test ditask.${class}.${CMAKE_MATCH_2})
      add_test(NAME ${test} COMMAND /usr/bin/python3 -B ${script} ${class}.${CMAKE_MATCH_1})
      # unittest takes a skipped test for a success.
      set_tests_properties(${test} PROPERTIES TIMEOUT 300 SKIP_REGULAR_EXPRESSION "OK \\(skipped=" ENVIRONMENT
        "DITASK=$<TARGET_FILE:ditask>;DIVISI=$<TARGET_FILE:divisi_program>;DITASK_PACKAGES=${CMAKE_BINARY_DIR}/tests/packages")
    endif()
  endforeach()
endforeach()

divisi_test(ditask_singleton_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/ditask_singleton_test.cc LINK divisi)
target_compile_definitions(ditask_singleton_test PRIVATE
  DIVISI_TEST_PACKAGES="${CMAKE_BINARY_DIR}/tests/packages")
target_link_libraries(ditask_singleton_test PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(ditask_singleton_test package_singleton)
