# Warnings and sanitizers, the same for every target.
add_compile_options(-Wall -Wextra -Wshadow -Wpointer-arith -Wundef
                    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
                    $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>)
if(VIADUCT_WERROR)
  add_compile_options(-Werror)
endif()
if(VIADUCT_SANITIZE)
  add_compile_options(-O1 -g1 -fsanitize=${VIADUCT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${VIADUCT_SANITIZE})
  if(VIADUCT_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(VIADUCT_SANITIZE MATCHES "thread")
    # Stand-alone fences are not modelled by the thread sanitizer. They order only the wake-up protocol, whose words are all
    # atomic; what is published goes through acquire and release, which is modelled.
    add_compile_options(-Wno-tsan)
  endif()
endif()

# For code that is never hot, commands and tests, most of what there is to compile: half the time in the optimised build,
# for less speed and symbols enough for a back trace. The debug preset has everything.
function(viaduct_never_hot target)
  if(NOT VIADUCT_SANITIZE AND CMAKE_BUILD_TYPE MATCHES "Rel")
    target_compile_options(${target} PRIVATE -O1 -g1)
  endif()
endfunction()
