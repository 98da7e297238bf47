add_library(shunt_warnings INTERFACE)
target_compile_options(shunt_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                                                -Wno-missing-field-initializers)
if(SHUNT_WERROR)
  target_compile_options(shunt_warnings INTERFACE -Werror)
endif()
