# The `viaduct` command: the cli room and everything it drives, in one executable.
add_executable(viaduct-command ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
set_target_properties(viaduct-command PROPERTIES OUTPUT_NAME viaduct LINKER_LANGUAGE CXX)
target_link_libraries(viaduct-command PRIVATE viaduct-cli viaduct-bench viaduct-memnet viaduct-mx viaduct-via viaduct-net viaduct-nic viaduct-sockets_view viaduct-copy viaduct-base ${CMAKE_DL_LIBS})
add_dependencies(viaduct-command viaduct-sockets-library)  # `viaduct run` preloads it from ../lib
target_compile_definitions(viaduct-cli PRIVATE VIADUCT_LIBDIR="${CMAKE_INSTALL_LIBDIR}")
install(TARGETS viaduct-command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
