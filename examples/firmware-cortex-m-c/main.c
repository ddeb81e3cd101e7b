/* Runs the keyword model once on a Cortex-M, prints its scores and compares them with those of onnxruntime.
 *
 * All that the model needs is here: an arena, the address of the input, a call. */
#include "kws.h"
#include "kws_case.h"
#include "semihosting.h"

/* Static memory: a run takes no heap, and little stack. How much is measured here: words below the stack pointer are set to
 * a value, and after the run those that still have it were not reached. */
#define STACK_WORDS 4096
#define PAINT 0xa5c3965au

static uint8_t arena[KWS_ARENA_BYTES] __attribute__((aligned(KWS_ARENA_ALIGN)));

static inline __attribute__((always_inline)) volatile uint32_t *stack_pointer(void)
{
    volatile uint32_t *sp;
    __asm__ volatile("mov %0, sp" : "=r"(sp));
    return sp;
}

static void print_count(uint32_t n)
{
    char text[12];
    int i = 11;
    text[i] = 0;
    do {
        text[--i] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    print(text + i);
}

/* Prints a number of order 1 with six digits; there is no printf here. */
static void print_number(float x)
{
    char text[16];
    int32_t left = (int32_t)(x * 1e6f + 0.5f), i = 15;
    text[i] = 0;
    do {
        text[--i] = (char)('0' + left % 10);
        left /= 10;
        if (i == 9)
            text[--i] = '.';
    } while (left > 0 || i > 7);
    print(text + i);
}

int main(void)
{
    const void *inputs[KWS_INPUTS] = {case_features};
    const void *outputs[KWS_OUTPUTS];
    const KWS_OUT_SCORES_TYPE *scores;
    volatile uint32_t *top, *word;
    float worst = 0;
    int i, status;
    top = stack_pointer();
    for (word = top - STACK_WORDS; word < top; word++)
        *word = PAINT;
    status = kws_run(arena, sizeof arena, inputs, outputs);
    scores = outputs[KWS_OUT_SCORES];
    for (word = top - STACK_WORDS; *word == PAINT;)
        word++;
    print("stack ");
    print_count((uint32_t)(top - word) * 4);
    print("\n");
    if (status != KWS_OK) {
        print(kws_explain(status));
        print("\n");
        return 1;
    }
    for (i = 0; i < KWS_OUT_SCORES_ELEMENTS; i++) {
        const float off = scores[i] > case_scores[i] ? scores[i] - case_scores[i] : case_scores[i] - scores[i];
        print_number(scores[i]);
        print(" (onnxruntime ");
        print_number(case_scores[i]);
        print(")\n");
        if (!(off <= worst))
            worst = off;
    }
    if (!(worst <= 1e-5f)) {
        print("the scores differ from onnxruntime's\n");
        return 1;
    }
    print("the scores equal onnxruntime's\n");
    return 0;
}
