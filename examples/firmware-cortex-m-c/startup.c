/* What runs before main on a Cortex-M: vectors, floating-point unit, variables. And memcpy and memset, which the model and the
 * compiler may call; there is no C library here. */
#include "semihosting.h"

#include <stddef.h>
#include <stdint.h>

extern uint32_t data_source[], data_start[], data_end[], bss_start[], bss_end[], stack_top[];

int main(void);
void reset(void);
void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    uint8_t *t = to;
    const uint8_t *f = from;
    while (bytes--)
        *t++ = *f++;
    return to;
}

void *memset(void *to, int byte, size_t bytes)
{
    uint8_t *t = to;
    while (bytes--)
        *t++ = (uint8_t)byte;
    return to;
}

static int semihost(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void print(const char *text)
{
    semihost(0x04 /* SYS_WRITE0 */, text);
}

void leave(int status)
{
    const uint32_t block[2] = {0x20026 /* ADP_Stopped_ApplicationExit */, (uint32_t)status};
    semihost(0x20 /* SYS_EXIT_EXTENDED */, block);
    for (;;)
        ;
}

void reset(void)
{
    uint32_t *to, *from = data_source;
#if defined(__ARM_FP)
    /* Full access to the coprocessors of the floating-point unit, before any instruction of it. */
    *(volatile uint32_t *)0xe000ed88u |= 0xfu << 20;
    __asm__ volatile("dsb\n isb" ::: "memory");
#endif
    for (to = data_start; to < data_end;)
        *to++ = *from++;
    for (to = bss_start; to < bss_end;)
        *to++ = 0;
    leave(main());
}

static void fault(void)
{
    print("fault\n");
    leave(2);
}

__attribute__((section(".vectors"), used)) static const uintptr_t vectors[16] = {
    (uintptr_t)stack_top, (uintptr_t)reset, (uintptr_t)fault, (uintptr_t)fault,
    (uintptr_t)fault,     (uintptr_t)fault, (uintptr_t)fault, (uintptr_t)fault,
};
