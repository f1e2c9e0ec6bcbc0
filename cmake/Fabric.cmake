# libviaduct-fi: the provider `viaduct` of libfabric, which libfabric loads from the folders of FI_PROVIDER_PATH or its
# own. Built where libfabric's headers are.
add_library(viaduct-fi SHARED)
target_link_libraries(viaduct-fi PRIVATE $<BUILD_INTERFACE:viaduct-fabric> $<BUILD_INTERFACE:viaduct-mx>
                      $<BUILD_INTERFACE:viaduct-via> $<BUILD_INTERFACE:viaduct-net> $<BUILD_INTERFACE:viaduct-nic>
                      $<BUILD_INTERFACE:viaduct-base> viaduct PkgConfig::libfabric)
set(fabric_exports ${CMAKE_SOURCE_DIR}/cmake/fabric.map)
# Its threads and what it does at exit outlive dlclose().
target_link_options(viaduct-fi PRIVATE -Wl,--version-script=${fabric_exports} -Wl,-z,nodelete)
if(NOT VIADUCT_SANITIZE)
  target_link_options(viaduct-fi PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(viaduct-fi PROPERTIES LINKER_LANGUAGE CXX INSTALL_RPATH "$ORIGIN/..:$ORIGIN"
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/libfabric LINK_DEPENDS ${fabric_exports})
install(TARGETS viaduct-fi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/libfabric)
