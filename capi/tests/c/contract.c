/* What graphmend.h promises, seen from C (and C++: the file is both).
 *
 *   contract SILERO.gmc FOREIGN.gmc       FOREIGN: the model packed for another instruction set */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphmend.h"

static int bad = 0;

static void expect_at(int line, int truth, const char *what)
{
    if (!truth) {
        fprintf(stderr, "contract.c:%d: not so: %s\n", line, what);
        bad++;
    }
}
#define EXPECT(truth) expect_at(__LINE__, (truth), #truth)

static void status_at(int line, gm_status got, gm_status wanted, const char *what)
{
    if (got != wanted) {
        fprintf(stderr, "contract.c:%d: %s: %s (%s), not: ", line, what, gm_error_message(got), gm_last_error());
        fprintf(stderr, "%s\n", gm_error_message(wanted));
        bad++;
    }
}
#define STATUS(wanted, call) status_at(__LINE__, (call), (wanted), #call)
#define FINE(call) STATUS(GM_STATUS_OK, call)

enum { SAMPLES = 576, STATE = 256 };
static const int64_t samples_shape[2] = {1, SAMPLES}, state_shape[3] = {2, 1, 128};
static const int64_t rate = 16000;
static float samples[SAMPLES], state[STATE];

static void *file_bytes(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    void *memory;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        exit(2);
    *bytes = (size_t)ftell(file);
    rewind(file);
    memory = malloc(*bytes);
    if (memory == NULL || fread(memory, 1, *bytes, file) != *bytes)
        exit(2);
    fclose(file);
    return memory;
}

static void set_inputs(gm_session *session)
{
    FINE(gm_session_set_input(session, 0, GM_DTYPE_F32, samples_shape, 2, samples, sizeof samples));
    FINE(gm_session_set_input(session, 1, GM_DTYPE_F32, state_shape, 3, state, sizeof state));
    FINE(gm_session_set_input(session, 2, GM_DTYPE_I64, NULL, 0, &rate, sizeof rate));
}

static float probability(gm_session *session)
{
    gm_tensor output;
    FINE(gm_session_run(session));
    FINE(gm_session_output(session, 0, &output));
    EXPECT(output.dtype == GM_DTYPE_F32 && output.rank == 2 && output.shape[0] == 1 && output.shape[1] == 1);
    EXPECT(output.bytes == sizeof(float));
    return *(const float *)output.data;
}

static void messages(void)
{
    int32_t code;
    EXPECT(gm_version() == (uint32_t)strtoul(gm_version_string(), NULL, 10) << 16
           || strchr(gm_version_string(), '.') != NULL);
    for (code = -2; code < 1000; code++)
        EXPECT(gm_error_message(code) != NULL && gm_error_message(code)[0] != 0);
}

static void opening(const char *path, const char *foreign)
{
    gm_model *model = NULL;
    gm_open_options options;
    uint8_t root[32], copy[32];
    size_t bytes, arena;
    char *memory = (char *)file_bytes(path, &bytes);
    char *odd = (char *)malloc(bytes + 1);
    memset(&options, 0, sizeof options);

    STATUS(GM_STATUS_NULL_POINTER, gm_model_open(NULL, NULL, &model));
    STATUS(GM_STATUS_NULL_POINTER, gm_model_open(path, NULL, NULL));
    STATUS(GM_STATUS_IO, gm_model_open("/no/such/file.gmc", NULL, &model));
    EXPECT(strstr(gm_last_error(), "/no/such/file.gmc") != NULL);
    STATUS(GM_STATUS_IO, gm_model_open("/", NULL, &model));
    STATUS(GM_STATUS_NOT_A_CACHE, gm_model_open(__FILE__, NULL, &model));
    STATUS(GM_STATUS_WRONG_TARGET, gm_model_open(foreign, NULL, &model));
    EXPECT(strstr(gm_last_error(), "built for ") != NULL);
    EXPECT(model == NULL);

    FINE(gm_model_open(path, NULL, &model));
    FINE(gm_model_root(model, root));
    gm_model_close(model);
    options.root = root;
    options.weights = GM_WEIGHTS_EAGER;
    options.storage = GM_STORAGE_READ;
    FINE(gm_model_open(path, &options, &model));
    gm_model_close(model);
    model = NULL;
    memcpy(copy, root, sizeof copy);
    copy[31] ^= 1;
    options.root = copy;
    STATUS(GM_STATUS_NOT_PINNED, gm_model_open(path, &options, &model));
    options.root = NULL;
    options.weights = 3;
    STATUS(GM_STATUS_ARGUMENT, gm_model_open(path, &options, &model));
    options.weights = GM_WEIGHTS_EAGER;
    options.storage = 99;
    STATUS(GM_STATUS_ARGUMENT, gm_model_open(path, &options, &model));
    options.storage = GM_STORAGE_MAP;

    /* From memory: whole, short, damaged, misaligned. */
    FINE(gm_model_open_memory(memory, bytes, &options, &model));
    FINE(gm_model_arena_bytes(model, &arena));
    gm_model_close(model);
    model = NULL;
    STATUS(GM_STATUS_NULL_POINTER, gm_model_open_memory(NULL, bytes, NULL, &model));
    STATUS(GM_STATUS_LENGTH, gm_model_open_memory(memory, bytes - 1, NULL, &model));
    STATUS(GM_STATUS_LENGTH, gm_model_open_memory(memory, 100, NULL, &model));
    STATUS(GM_STATUS_NOT_A_CACHE, gm_model_open_memory(memory, 0, NULL, &model));
    STATUS(GM_STATUS_ARGUMENT, gm_model_open_memory(memory, SIZE_MAX, NULL, &model));
    memory[bytes - 1] ^= 1;
    STATUS(GM_STATUS_DAMAGED, gm_model_open_memory(memory, bytes, &options, &model));
    memory[bytes - 1] ^= 1;
    memcpy(odd + 1, memory, bytes);
    STATUS(GM_STATUS_MISALIGNED, gm_model_open_memory(odd + 1, bytes, NULL, &model));
    EXPECT(model == NULL);
    gm_model_close(NULL);
    free(odd);
    free(memory);
}

static void describing(const gm_model *model)
{
    gm_tensor_info info;
    size_t count = 0, index = 99;
    FINE(gm_model_inputs(model, &count));
    EXPECT(count == 3);
    FINE(gm_model_outputs(model, &count));
    EXPECT(count == 2);
    FINE(gm_model_input(model, 0, &info));
    EXPECT(strcmp(info.name, "input") == 0 && info.dtype == GM_DTYPE_F32 && info.rank == 2);
    /* Open. */
    EXPECT(info.dims[1].min == 0 && info.dims[1].max == INT64_MAX && strcmp(info.dims[1].symbol, "input.1") == 0);
    FINE(gm_model_input(model, 1, &info));
    /* Fixed, without a name. */
    EXPECT(info.dims[2].min == 128 && info.dims[2].max == 128 && info.dims[2].symbol == NULL);
    FINE(gm_model_input(model, 2, &info));
    EXPECT(strcmp(info.name, "sr") == 0 && info.dtype == GM_DTYPE_I64 && info.rank == 0);
    FINE(gm_model_output(model, 1, &info));
    EXPECT(strcmp(info.name, "stateN") == 0 && info.rank == 3);
    FINE(gm_model_find_output(model, "stateN", &index));
    EXPECT(index == 1);
    STATUS(GM_STATUS_NO_SUCH_TENSOR, gm_model_find_input(model, "stateN", &index));
    EXPECT(index == 1 && strstr(gm_last_error(), "input, state, sr") != NULL);
    STATUS(GM_STATUS_NO_SUCH_TENSOR, gm_model_input(model, 3, &info));
    STATUS(GM_STATUS_NO_SUCH_TENSOR, gm_model_output(model, SIZE_MAX, &info));
    STATUS(GM_STATUS_NULL_POINTER, gm_model_input(NULL, 0, &info));
    STATUS(GM_STATUS_NULL_POINTER, gm_model_input(model, 0, NULL));
    STATUS(GM_STATUS_NULL_POINTER, gm_model_find_input(model, NULL, &index));
    STATUS(GM_STATUS_NULL_POINTER, gm_model_inputs(NULL, &count));
    STATUS(GM_STATUS_NULL_POINTER, gm_model_arena_bytes(model, NULL));
    STATUS(GM_STATUS_NULL_POINTER, gm_model_root(model, NULL));
}

static void inputs(const gm_model *model)
{
    gm_session *session = NULL;
    gm_tensor output;
    const int64_t negative[2] = {1, -1}, long_shape[33] = {0}, two[3] = {2, 1, 127};
    static float twice[1 + SAMPLES];
    STATUS(GM_STATUS_NULL_POINTER, gm_session_new(NULL, NULL, &session));
    STATUS(GM_STATUS_NULL_POINTER, gm_session_new(model, NULL, NULL));
    FINE(gm_session_new(model, NULL, &session));
    STATUS(GM_STATUS_NULL_POINTER, gm_session_run(NULL));
    STATUS(GM_STATUS_INPUT_MISSING, gm_session_run(session));
    STATUS(GM_STATUS_NO_OUTPUT, gm_session_output(session, 0, &output));
    set_inputs(session);
    (void)probability(session);
    STATUS(GM_STATUS_NULL_POINTER, gm_session_output(session, 0, NULL));
    STATUS(GM_STATUS_NULL_POINTER, gm_session_output(NULL, 0, &output));
    STATUS(GM_STATUS_NO_SUCH_TENSOR, gm_session_output(session, 2, &output));

    /* Refused when set; what was set before stays. */
    STATUS(GM_STATUS_NULL_POINTER, gm_session_set_input(NULL, 0, GM_DTYPE_F32, samples_shape, 2, samples, 4));
    STATUS(GM_STATUS_NULL_POINTER, gm_session_set_input(session, 0, GM_DTYPE_F32, NULL, 2, samples, 4));
    STATUS(GM_STATUS_NULL_POINTER, gm_session_set_input(session, 0, GM_DTYPE_F32, samples_shape, 2, NULL, 4));
    STATUS(GM_STATUS_ARGUMENT, gm_session_set_input(session, 0, 0, samples_shape, 2, samples, 4));
    STATUS(GM_STATUS_ARGUMENT, gm_session_set_input(session, 0, 14, samples_shape, 2, samples, 4));
    STATUS(GM_STATUS_ARGUMENT, gm_session_set_input(session, 0, 0x10c, samples_shape, 2, samples, 4));
    STATUS(GM_STATUS_ARGUMENT, gm_session_set_input(session, 0, GM_DTYPE_F32, negative, 2, samples, 4));
    STATUS(GM_STATUS_ARGUMENT, gm_session_set_input(session, 0, GM_DTYPE_F32, long_shape, 33, samples, 4));
    STATUS(GM_STATUS_ARGUMENT, gm_session_set_input(session, 0, GM_DTYPE_F32, samples_shape, 2, samples, SIZE_MAX));
    STATUS(GM_STATUS_NO_SUCH_TENSOR, gm_session_set_input(session, 3, GM_DTYPE_F32, samples_shape, 2, samples, 4));
    (void)probability(session);

    /* Refused by the run. */
    FINE(gm_session_set_input(session, 0, GM_DTYPE_F64, samples_shape, 2, samples, sizeof samples));
    STATUS(GM_STATUS_INPUT_TYPE, gm_session_run(session));
    STATUS(GM_STATUS_NO_OUTPUT, gm_session_output(session, 0, &output));
    FINE(gm_session_set_input(session, 0, GM_DTYPE_F32, samples_shape, 1, samples, sizeof samples));
    STATUS(GM_STATUS_INPUT_SHAPE, gm_session_run(session));
    EXPECT(strstr(gm_last_error(), "input.1") != NULL);
    FINE(gm_session_set_input(session, 0, GM_DTYPE_F32, samples_shape, 2, samples, sizeof samples - 4));
    STATUS(GM_STATUS_INPUT_BYTES, gm_session_run(session));
    FINE(gm_session_set_input(session, 0, GM_DTYPE_F32, samples_shape, 2, (char *)twice + 1, sizeof samples));
    STATUS(GM_STATUS_INPUT_MISALIGNED, gm_session_run(session));
    set_inputs(session);
    FINE(gm_session_set_input(session, 1, GM_DTYPE_F32, two, 3, state, sizeof state - 8));
    STATUS(GM_STATUS_INPUT_SHAPE, gm_session_run(session));
    set_inputs(session);
    (void)probability(session);

    /* An output is no input: the arena is written to, and may move. */
    FINE(gm_session_output(session, 1, &output));
    FINE(gm_session_set_input(session, 1, output.dtype, output.shape, output.rank, output.data, output.bytes));
    STATUS(GM_STATUS_INPUT_OVERLAP, gm_session_run(session));
    gm_session_free(session);
    gm_session_free(NULL);
}

static void lent_arena(const gm_model *model, float expected)
{
    gm_session *session = NULL;
    gm_session_options options;
    size_t bytes, needed = 1;
    char *arena = NULL;
    memset(&options, 0, sizeof options);
    options.threads = 1;
    FINE(gm_model_arena_bytes(model, &bytes));
    arena = (char *)aligned_alloc(GM_ARENA_ALIGN, 1 << 20);
    options.arena = arena;
    options.arena_bytes = bytes - 1;
    STATUS(GM_STATUS_ARENA_TOO_SMALL, gm_session_new(model, &options, &session));
    options.arena = arena + 8;
    options.arena_bytes = 1 << 16;
    STATUS(GM_STATUS_MISALIGNED, gm_session_new(model, &options, &session));
    EXPECT(session == NULL);
    options.arena = arena;
    options.arena_bytes = bytes;
    FINE(gm_session_new(model, &options, &session));
    FINE(gm_session_arena_needed(session, &needed));
    EXPECT(needed == 0);
    /* Sizes are open: the run says what it needs. */
    set_inputs(session);
    STATUS(GM_STATUS_ARENA_TOO_SMALL, gm_session_run(session));
    FINE(gm_session_arena_needed(session, &needed));
    STATUS(GM_STATUS_NULL_POINTER, gm_session_arena_needed(session, NULL));
    EXPECT(needed > bytes && needed <= 1 << 20);
    gm_session_free(session);
    options.arena_bytes = 1 << 20;
    FINE(gm_session_new(model, &options, &session));
    set_inputs(session);
    EXPECT(probability(session) == expected);
    gm_session_free(session);
    free(arena);
}

struct job {
    gm_session *session;
    float expected;
};

static void *work(void *data)
{
    const struct job *job = (const struct job *)data;
    int i;
    for (i = 0; i < 5; i++)
        EXPECT(probability(job->session) == job->expected);
    return NULL;
}

/* Two threads, each with a session of one model, which is closed while they run. */
static void threads(const char *path, float expected)
{
    gm_model *model = NULL;
    gm_session_options options;
    pthread_t thread[2];
    struct job jobs[2];
    int i;
    memset(&options, 0, sizeof options);
    FINE(gm_model_open(path, NULL, &model));
    options.threads = 257;
    STATUS(GM_STATUS_THREADS, gm_session_new(model, &options, &jobs[0].session));
    for (i = 0; i < 2; i++) {
        options.threads = (uint32_t)i + 1;
        FINE(gm_session_new(model, &options, &jobs[i].session));
        set_inputs(jobs[i].session);
        jobs[i].expected = expected;
    }
    for (i = 0; i < 2; i++)
        EXPECT(pthread_create(&thread[i], NULL, work, &jobs[i]) == 0);
    gm_model_close(model);
    for (i = 0; i < 2; i++)
        EXPECT(pthread_join(thread[i], NULL) == 0);
    for (i = 0; i < 2; i++)
        gm_session_free(jobs[i].session);
}

int main(int argc, char **argv)
{
    gm_model *model = NULL;
    gm_session *session = NULL;
    float expected;
    int i;
    if (argc != 3)
        return 2;
    for (i = 0; i < SAMPLES; i++)
        samples[i] = (float)((i * 7919) % 2001 - 1000) / 4000.0f;
    messages();
    opening(argv[1], argv[2]);
    FINE(gm_model_open(argv[1], NULL, &model));
    describing(model);
    FINE(gm_session_new(model, NULL, &session));
    set_inputs(session);
    expected = probability(session);
    EXPECT(expected > 0.0f && expected < 1.0f);
    gm_session_free(session);
    inputs(model);
    lent_arena(model, expected);
    gm_model_close(model);
    threads(argv[1], expected);
    if (bad == 0)
        printf("the contract holds\n");
    return bad != 0;
}
