# cmake --install: one library, the public headers, the programs, and find_package(divisi).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/divisi)
install(TARGETS divisi EXPORT divisi_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/divisi DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(TARGET ditask)
  # The installed program finds the library beside it, wherever the tree was put.
  set_target_properties(ditask PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS ditask RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
# Those of Kubernetes are installed where they were built: ./run builds the runtime only.
foreach(program divisi_program divisi_report ding di_orchestrator)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
  endif()
endforeach()
if(TARGET di_orchestrator)
  set(programs $<TARGET_FILE_DIR:di_orchestrator>)
  install(FILES ${programs}/di-operator ${programs}/di-server DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)  # links
endif()

install(EXPORT divisi_targets NAMESPACE divisi:: DESTINATION ${package_dir})
configure_package_config_file(cmake/divisi-config.cmake.in ${CMAKE_BINARY_DIR}/divisi-config.cmake
                              INSTALL_DESTINATION ${package_dir})
# Until 1.0 a minor version may change what compiled packages see.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/divisi-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/divisi-config.cmake ${CMAKE_BINARY_DIR}/divisi-config-version.cmake
        DESTINATION ${package_dir})
