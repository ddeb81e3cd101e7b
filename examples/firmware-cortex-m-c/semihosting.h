/* Output and exit through the debugger, or QEMU. */
#ifndef SEMIHOSTING_H
#define SEMIHOSTING_H

void print(const char *text);
void leave(int status) __attribute__((noreturn));

#endif
