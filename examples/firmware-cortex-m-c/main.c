/* Runs the keyword model once on a Cortex-M, prints its scores and compares them with those of onnxruntime.
 *
 * All that the model needs is here: an arena, the address of the input, a call. */
#include "kws.h"
#include "kws_case.h"
#include "semihosting.h"

/* Static memory: a run takes no heap, and little stack. */
static uint8_t arena[KWS_ARENA_BYTES] __attribute__((aligned(KWS_ARENA_ALIGN)));

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
    const int status = kws_run(arena, sizeof arena, inputs, outputs);
    const KWS_OUT_SCORES_TYPE *scores = outputs[KWS_OUT_SCORES];
    float worst = 0;
    int i;
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
