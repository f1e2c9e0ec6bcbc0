# libmyriexpress: the MX interface for programs that are linked with -lmyriexpress. Its file name is its soname, as
# programs that were built elsewhere know it. Engine-owned memory is libviaduct's.
add_library(myriexpress SHARED)
target_link_libraries(myriexpress PRIVATE $<BUILD_INTERFACE:viaduct-mx> $<BUILD_INTERFACE:viaduct-via>
                      $<BUILD_INTERFACE:viaduct-net> $<BUILD_INTERFACE:viaduct-nic> $<BUILD_INTERFACE:viaduct-base> viaduct)
target_include_directories(myriexpress PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
set(mx_exports ${CMAKE_SOURCE_DIR}/cmake/myriexpress.map)
target_link_options(myriexpress PRIVATE -Wl,--version-script=${mx_exports})
if(NOT VIADUCT_SANITIZE)
  target_link_options(myriexpress PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(myriexpress PROPERTIES LINKER_LANGUAGE CXX INSTALL_RPATH "$ORIGIN" LINK_DEPENDS ${mx_exports})

configure_file(${CMAKE_SOURCE_DIR}/cmake/myriexpress.pc.in ${CMAKE_BINARY_DIR}/myriexpress.pc @ONLY)
install(TARGETS myriexpress EXPORT viaduct-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_BINARY_DIR}/myriexpress.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
