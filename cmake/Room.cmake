# A room is a folder src/<name> with one door: the headers that others may include (DOORS), mostly in include/viaduct.
#
#   viaduct_room(copy KNOWS base DOORS viaduct/adma.h viaduct/copy.hpp LINKS ...)
#
# makes the object library viaduct-<name>. Before its sources compile, their #include lines are checked: own files, the
# insides of `base`, and the doors of the rooms it KNOWS. Anything else stops the build. A main.cpp is checked with its
# room but belongs to the program alone, so that tests can link the rest.

function(viaduct_room name)
  cmake_parse_arguments(room "" "" "KNOWS;DOORS;LINKS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp ${CMAKE_SOURCE_DIR}/src/${name}/*.c
       ${CMAKE_SOURCE_DIR}/src/${name}/*/*.cpp)
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.hpp ${CMAKE_SOURCE_DIR}/src/${name}/*.h
       ${CMAKE_SOURCE_DIR}/src/${name}/*/*.hpp)

  set(objects ${sources})
  list(FILTER objects EXCLUDE REGEX "/main\\.cpp$")
  add_library(viaduct-${name} OBJECT ${objects})
  target_include_directories(viaduct-${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include
                             ${CMAKE_BINARY_DIR}/include)
  target_link_libraries(viaduct-${name} PUBLIC ${room_LINKS})
  target_compile_definitions(viaduct-${name} PRIVATE VIADUCT_BUILDING)

  # Every room is checked against every door, also those declared after it: asked for when the build is generated.
  if(NOT TARGET viaduct-doors)
    add_library(viaduct-doors INTERFACE)
  endif()
  foreach(door ${room_DOORS})
    set_property(TARGET viaduct-doors APPEND PROPERTY VIADUCT_DOORS ${door}=${name})
  endforeach()

  set(stamp ${CMAKE_BINARY_DIR}/rooms/${name}.checked)
  add_custom_command(
    OUTPUT ${stamp}
    COMMAND ${CMAKE_COMMAND} -DROOM=${name} "-DKNOWS=${room_KNOWS}" "-DDOORS=$<TARGET_PROPERTY:viaduct-doors,VIADUCT_DOORS>"
            "-DFILES=${sources};${headers}" -DSTAMP=${stamp} -P ${CMAKE_SOURCE_DIR}/cmake/CheckRoom.cmake
    DEPENDS ${sources} ${headers} ${CMAKE_SOURCE_DIR}/cmake/CheckRoom.cmake
    COMMENT "Checking what the room ${name} includes"
    VERBATIM)
  add_custom_target(check-room-${name} DEPENDS ${stamp})
  add_dependencies(viaduct-${name} check-room-${name})
endfunction()
