# libmemnet: sockets over a TCP server, for programs that are linked with -lmemnet. Engine-owned memory is libviaduct's.
add_library(memnet SHARED)
target_link_libraries(memnet PRIVATE $<BUILD_INTERFACE:viaduct-memnet> $<BUILD_INTERFACE:viaduct-via>
                      $<BUILD_INTERFACE:viaduct-net> $<BUILD_INTERFACE:viaduct-nic> $<BUILD_INTERFACE:viaduct-base> viaduct)
target_include_directories(memnet PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
set(memnet_exports ${CMAKE_SOURCE_DIR}/cmake/memnet.map)
target_link_options(memnet PRIVATE -Wl,--version-script=${memnet_exports})
if(NOT VIADUCT_SANITIZE)
  target_link_options(memnet PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(memnet PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                      INSTALL_RPATH "$ORIGIN" LINK_DEPENDS ${memnet_exports})

configure_file(${CMAKE_SOURCE_DIR}/cmake/memnet.pc.in ${CMAKE_BINARY_DIR}/memnet.pc @ONLY)
install(TARGETS memnet EXPORT viaduct-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_BINARY_DIR}/memnet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
