/* The text of kernels.ptx inside the program, ended by a zero, so that it needs no file when it
 * runs. Compile with the assembler's include path at this folder: `cc -Wa,-Iexamples/kernels ...`
 */
#ifndef KERNELS_PTX_H
#define KERNELS_PTX_H

__asm__(".pushsection .rodata\n"
        ".local kernels_ptx\n"
        "kernels_ptx:\n"
        ".incbin \"kernels.ptx\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char kernels_ptx[] __attribute__((visibility("hidden")));

#endif
