/* Environment of riscv-tests for a program in user mode of Linux, beside the environments of that project, which set up
   machine mode or page tables. A test begins at _start, and ends with exit(2): with 0 if it passes, else with twice the
   number of the failed case and one more. */

#ifndef RISCV_TEST_H
#define RISCV_TEST_H

#define TESTNUM gp

/* Instruction sets of tests: registers of floating point need no set-up in user mode. */
#define RVTEST_RV64U
#define RVTEST_RV64UF

#define RVTEST_CODE_BEGIN \
    .section .text.init;  \
    .align 6;             \
    .globl _start;        \
_start:                   \
    li TESTNUM, 0;

#define RVTEST_CODE_END unimp

#define EXIT_CALL 93

#define RVTEST_PASS    \
    fence;             \
    li a7, EXIT_CALL;  \
    li a0, 0;          \
    ecall

#define RVTEST_FAIL        \
    fence;                 \
    slli a0, TESTNUM, 1;   \
    ori a0, a0, 1;         \
    li a7, EXIT_CALL;      \
    ecall

#define RVTEST_DATA_BEGIN .align 4;
#define RVTEST_DATA_END

#endif
