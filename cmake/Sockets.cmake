# libviaduct-sockets: what `viaduct run` preloads. It lives inside other people's programs, so it brings nothing along:
# the few parts of `base` that it needs are compiled in, with a small log of its own, and the C++ library is linked in.
set(sockets_base segment fd socket_message clock spin config copy_loop far_reader)
list(TRANSFORM sockets_base PREPEND ${CMAKE_SOURCE_DIR}/src/base/)
list(TRANSFORM sockets_base APPEND .cpp)
add_library(viaduct-sockets-library SHARED $<TARGET_OBJECTS:viaduct-sockets> ${sockets_base})
target_include_directories(viaduct-sockets-library PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include
                           ${CMAKE_BINARY_DIR}/include)
target_link_libraries(viaduct-sockets-library PRIVATE fmt::fmt-header-only ${CMAKE_DL_LIBS})
set(sockets_exports ${CMAKE_SOURCE_DIR}/cmake/sockets.map)
target_link_options(viaduct-sockets-library PRIVATE -Wl,--version-script=${sockets_exports} -Wl,-z,now -Wl,-Bsymbolic)
if(NOT VIADUCT_SANITIZE)
  # But not the unwinder: a thread that is cancelled is taken apart by the one that libc uses, through our frames too.
  target_link_options(viaduct-sockets-library PRIVATE -static-libstdc++ -shared-libgcc -Wl,--no-undefined)
endif()
set_target_properties(viaduct-sockets-library PROPERTIES OUTPUT_NAME viaduct-sockets LINK_DEPENDS ${sockets_exports})
# The few words that a call keeps on its stack are written and read one by one: joined in vectors they cost more.
target_compile_options(viaduct-sockets PRIVATE -fno-tree-slp-vectorize)
# Every call of the program goes through here: one unit for the optimiser.
if(NOT VIADUCT_SANITIZE AND CMAKE_BUILD_TYPE MATCHES "Rel")
  set_target_properties(viaduct-sockets viaduct-sockets-library PROPERTIES INTERPROCEDURAL_OPTIMIZATION ON)
endif()
install(TARGETS viaduct-sockets-library LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
