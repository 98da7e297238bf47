// The kernels, for every architecture of the build.
  .section .rodata
  .global shunt_fatbin_begin
  .hidden shunt_fatbin_begin
  .balign 64
shunt_fatbin_begin:
  .incbin SHUNT_FATBIN_PATH
  .section .note.GNU-stack,"",%progbits
