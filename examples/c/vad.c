/* Finds the speech in a recording with a packed Silero voice activity model, through the C API.
 *
 *   vad MODEL.gmc RECORDING.wav       16-bit mono PCM, 16000 samples a second
 *
 * It prints the probability of speech of each window of 512 samples. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphmend.h"

enum { RATE = 16000, WINDOW = 512, CONTEXT = 64, STATE = 2 * 1 * 128 };

static void check(gm_status status, const char *doing)
{
    if (status != GM_STATUS_OK) {
        fprintf(stderr, "vad: %s: %s (%s)\n", doing, gm_error_message(status), gm_last_error());
        exit(1);
    }
}

static unsigned le(const unsigned char *bytes, int count)
{
    unsigned value = 0;
    while (count-- > 0)
        value = value << 8 | bytes[count];
    return value;
}

/* The data of a plain WAV file; null if it is none, or of another kind. */
static short *read_wav(const char *path, size_t *samples)
{
    unsigned char head[12], chunk[8], format[16];
    int known = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    if (fread(head, 1, sizeof head, file) != sizeof head || memcmp(head, "RIFF", 4) != 0 || memcmp(head + 8, "WAVE", 4) != 0)
        goto bad;
    while (fread(chunk, 1, sizeof chunk, file) == sizeof chunk) {
        unsigned bytes = le(chunk + 4, 4);
        if (memcmp(chunk, "fmt ", 4) == 0 && bytes >= sizeof format) {
            if (fread(format, 1, sizeof format, file) != sizeof format)
                goto bad;
            known = le(format, 2) == 1 && le(format + 2, 2) == 1 && le(format + 4, 4) == RATE && le(format + 14, 2) == 16;
            bytes -= sizeof format;
        } else if (memcmp(chunk, "data", 4) == 0 && known) {
            unsigned char *raw = malloc(bytes + 1);
            short *data = malloc(bytes + 1);
            size_t i;
            if (raw == NULL || data == NULL || fread(raw, 1, bytes, file) != bytes) {
                free(raw);
                free(data);
                goto bad;
            }
            *samples = bytes / 2;
            for (i = 0; i < *samples; i++)
                data[i] = (short)le(raw + 2 * i, 2);
            free(raw);
            fclose(file);
            return data;
        }
        if (fseek(file, (long)(bytes + bytes % 2), SEEK_CUR) != 0)
            break;
    }
bad:
    fclose(file);
    return NULL;
}

int main(int argc, char **argv)
{
    gm_model *model;
    gm_session *session;
    /* What a window is given: the end of the one before, and its own samples. */
    static float samples[CONTEXT + WINDOW];
    static float state[STATE];
    const int64_t rate = RATE;
    const int64_t samples_shape[2] = {1, CONTEXT + WINDOW}, state_shape[3] = {2, 1, 128};
    size_t input, state_in, sr, probability, state_out, count = 0, first, i;
    short *recording;

    if (argc != 3) {
        fprintf(stderr, "usage: vad MODEL.gmc RECORDING.wav\n");
        return 2;
    }
    recording = read_wav(argv[2], &count);
    if (recording == NULL) {
        fprintf(stderr, "vad: %s is no WAV file with 16-bit mono PCM at %d Hz\n", argv[2], RATE);
        return 1;
    }
    check(gm_model_open(argv[1], NULL, &model), "open");
    check(gm_model_find_input(model, "input", &input), "input");
    check(gm_model_find_input(model, "state", &state_in), "state");
    check(gm_model_find_input(model, "sr", &sr), "sr");
    check(gm_model_find_output(model, "output", &probability), "output");
    check(gm_model_find_output(model, "stateN", &state_out), "stateN");
    check(gm_session_new(model, NULL, &session), "session");
    /* Data is lent, not copied: once is enough, what the arrays hold changes. */
    check(gm_session_set_input(session, input, GM_DTYPE_F32, samples_shape, 2, samples, sizeof samples), "input");
    check(gm_session_set_input(session, state_in, GM_DTYPE_F32, state_shape, 3, state, sizeof state), "state");
    check(gm_session_set_input(session, sr, GM_DTYPE_I64, NULL, 0, &rate, sizeof rate), "sr");

    for (first = 0; first + WINDOW <= count; first += WINDOW) {
        gm_tensor output;
        for (i = 0; i < WINDOW; i++)
            samples[CONTEXT + i] = (float)recording[first + i] / 32768.0f;
        check(gm_session_run(session), "run");
        check(gm_session_output(session, probability, &output), "output");
        printf("%.6f\n", (double)*(const float *)output.data);
        check(gm_session_output(session, state_out, &output), "stateN");
        if (output.bytes != sizeof state) {
            fprintf(stderr, "vad: the state has %lu bytes\n", (unsigned long)output.bytes);
            return 1;
        }
        memcpy(state, output.data, sizeof state);
        memmove(samples, samples + WINDOW, CONTEXT * sizeof samples[0]);
    }
    gm_session_free(session);
    gm_model_close(model);
    free(recording);
    return 0;
}
