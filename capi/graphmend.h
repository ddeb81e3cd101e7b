/* GraphMend: runs packed models (.gmc files, made by graphmend-pack).
 *
 * Generated from the Rust source in capi/src by cbindgen: do not edit. GRAPHMEND_BLESS=1 cargo test -p graphmend-capi
 * writes it anew.
 *
 * - Every function that can fail gives a gm_status, GM_STATUS_OK (0) for success. gm_error_message has a sentence for each;
 *   gm_last_error has the details of the calling thread's last failure: names, sizes, which processor feature is missing.
 * - A null pointer where none is allowed is GM_STATUS_NULL_POINTER. When a function fails, what it should have written is left
 *   as it was, unless its description says otherwise.
 * - A model may be used by any number of threads at once. A session is used by one at a time: a second one gets
 *   GM_STATUS_BUSY. Sessions keep their model alive: it may be closed before them.
 * - A run allocates nothing, unless the session owns its arena and the run needs a larger one.
 * - No function unwinds or ends the program on bad input, damaged files included. Sizes are not a limit either: memory that
 *   cannot be had for a model, an arena or threads is GM_STATUS_OUT_OF_MEMORY; only for the few bytes of a handle or a
 *   message the program ends.
 * - A packed file is machine code that runs with this program's rights: open files that you made, or pin their root digest.
 */


#ifndef GRAPHMEND_H
#define GRAPHMEND_H

#include <stddef.h>
#include <stdint.h>

/**
 * Alignment that a lent arena must have.
 */
#define GM_ARENA_ALIGN 64

/**
 * Greatest number of dimensions.
 */
#define GM_MAX_RANK 32

/**
 * What a call came to. Values never change; later versions may add some.
 */
enum gm_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Success.
   */
  GM_STATUS_OK = 0,
  /**
   * A pointer is null that must not be.
   */
  GM_STATUS_NULL_POINTER = 1,
  /**
   * An argument has a value that makes no sense: an unknown element type, a negative size, too many dimensions.
   */
  GM_STATUS_ARGUMENT = 2,
  /**
   * The operating system refused to open, read or map the file.
   */
  GM_STATUS_IO = 3,
  /**
   * The file is not a packed model.
   */
  GM_STATUS_NOT_A_CACHE = 4,
  /**
   * The file is shorter or longer than it says.
   */
  GM_STATUS_LENGTH = 5,
  /**
   * The file has a format that this library does not read.
   */
  GM_STATUS_VERSION = 6,
  /**
   * The file is damaged: some bytes do not have their digest, or a record is wrong.
   */
  GM_STATUS_DAMAGED = 7,
  /**
   * The file is not the one whose root digest was given.
   */
  GM_STATUS_NOT_PINNED = 8,
  /**
   * The file was made for another kind of processor or operating system.
   */
  GM_STATUS_WRONG_TARGET = 9,
  /**
   * The file needs processor features that this processor lacks.
   */
  GM_STATUS_MISSING_FEATURES = 10,
  /**
   * There is not enough memory.
   */
  GM_STATUS_OUT_OF_MEMORY = 11,
  /**
   * As many threads cannot be had.
   */
  GM_STATUS_THREADS = 12,
  /**
   * The lent arena is too small.
   */
  GM_STATUS_ARENA_TOO_SMALL = 13,
  /**
   * Lent memory is not aligned as it must be.
   */
  GM_STATUS_MISALIGNED = 14,
  /**
   * There is no input or output of this number or name.
   */
  GM_STATUS_NO_SUCH_TENSOR = 15,
  /**
   * An input was not set before the run.
   */
  GM_STATUS_INPUT_MISSING = 16,
  /**
   * An input has another element type than the model declares.
   */
  GM_STATUS_INPUT_TYPE = 17,
  /**
   * An input has another number of dimensions or another size than the model declares.
   */
  GM_STATUS_INPUT_SHAPE = 18,
  /**
   * An input's data is not as long as its shape and type say.
   */
  GM_STATUS_INPUT_BYTES = 19,
  /**
   * An input's data is not aligned to its element type.
   */
  GM_STATUS_INPUT_MISALIGNED = 20,
  /**
   * An input's data lies in the session's arena, like the outputs of a run.
   */
  GM_STATUS_INPUT_OVERLAP = 21,
  /**
   * An index in the data is out of range.
   */
  GM_STATUS_DATA_INDEX = 22,
  /**
   * A condition that the model demands of its data does not hold.
   */
  GM_STATUS_CHECK = 23,
  /**
   * There are no outputs: no run has succeeded.
   */
  GM_STATUS_NO_OUTPUT = 24,
  /**
   * The run failed in another way: a size that follows from the data is too large, say.
   */
  GM_STATUS_RUN = 25,
  /**
   * The session is in use by another thread.
   */
  GM_STATUS_BUSY = 26,
  /**
   * An error in this library. The session that it happened in is of no more use.
   */
  GM_STATUS_INTERNAL = 27,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gm_status gm_status;
#else
typedef int32_t gm_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Element types. Values never change.
 */
enum gm_dtype
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * One byte, 0 or 1.
   */
  GM_DTYPE_BOOL = 1,
  /**
   * Signed, 8 bits.
   */
  GM_DTYPE_I8 = 2,
  /**
   * Signed, 16 bits.
   */
  GM_DTYPE_I16 = 3,
  /**
   * Signed, 32 bits.
   */
  GM_DTYPE_I32 = 4,
  /**
   * Signed, 64 bits.
   */
  GM_DTYPE_I64 = 5,
  /**
   * Unsigned, 8 bits.
   */
  GM_DTYPE_U8 = 6,
  /**
   * Unsigned, 16 bits.
   */
  GM_DTYPE_U16 = 7,
  /**
   * Unsigned, 32 bits.
   */
  GM_DTYPE_U32 = 8,
  /**
   * Unsigned, 64 bits.
   */
  GM_DTYPE_U64 = 9,
  /**
   * IEEE binary16.
   */
  GM_DTYPE_F16 = 10,
  /**
   * bfloat16.
   */
  GM_DTYPE_BF16 = 11,
  /**
   * IEEE binary32: float.
   */
  GM_DTYPE_F32 = 12,
  /**
   * IEEE binary64: double.
   */
  GM_DTYPE_F64 = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gm_dtype gm_dtype;
#else
typedef uint32_t gm_dtype;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * When weights are compared with their digests.
 */
enum gm_weights
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Each block of 64 KiB before its first use: the default.
   */
  GM_WEIGHTS_ON_USE = 0,
  /**
   * All when the model is opened.
   */
  GM_WEIGHTS_EAGER = 1,
  /**
   * Never: the storage is trusted.
   */
  GM_WEIGHTS_SKIP = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gm_weights gm_weights;
#else
typedef uint32_t gm_weights;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Where a file's weights are while it is open.
 */
enum gm_storage
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * In the mapped file: the default. Only pages that are used are read. Replace such a file by renaming: one that is
   * shortened while open ends the program (SIGBUS).
   */
  GM_STORAGE_MAP = 0,
  /**
   * In private memory: the file is read as a whole.
   */
  GM_STORAGE_READ = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gm_storage gm_storage;
#else
typedef uint32_t gm_storage;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * An open model. Any number of threads may use it at once.
 */
typedef struct gm_model gm_model;

/**
 * A model with memory for its runs. One thread uses it at a time.
 */
typedef struct gm_session gm_session;

/**
 * How a model is opened. All zeros are the defaults.
 */
typedef struct gm_open_options {
  /**
   * The root digest that the file must have, 32 bytes (graphmend-run inspect prints it), or null for any file.
   */
  const uint8_t *root;
  /**
   * A gm_weights.
   */
  uint32_t weights;
  /**
   * A gm_storage. Only for gm_model_open.
   */
  uint32_t storage;
} gm_open_options;

/**
 * A dimension as the model declares it. It is open if min and max differ.
 */
typedef struct gm_dim {
  /**
   * Least size.
   */
  int64_t min;
  /**
   * Greatest size; INT64_MAX if there is none.
   */
  int64_t max;
  /**
   * Its name in the model, or null. Dimensions of inputs with one name have one size.
   */
  const char *symbol;
} gm_dim;

/**
 * An input or output as the model declares it.
 */
typedef struct gm_tensor_info {
  /**
   * Its name.
   */
  const char *name;
  /**
   * Element type.
   */
  gm_dtype dtype;
  /**
   * Number of dimensions.
   */
  size_t rank;
  /**
   * The dimensions, outermost first.
   */
  const struct gm_dim *dims;
} gm_tensor_info;

/**
 * What a session uses. All zeros are the defaults but for one thread.
 */
typedef struct gm_session_options {
  /**
   * Memory for the arena, at a multiple of GM_ARENA_ALIGN, or null for memory of the session's own, which grows when a run
   * needs more. Lent memory belongs to the session until it is freed.
   */
  void *arena;
  /**
   * Bytes of lent memory, at least gm_model_arena_bytes.
   */
  size_t arena_bytes;
  /**
   * Threads that share the work of each run, the calling one included; 0 for as many as this process has processors for.
   * Results are the same to the bit.
   */
  uint32_t threads;
} gm_session_options;

/**
 * An output of a run.
 */
typedef struct gm_tensor {
  /**
   * Element type.
   */
  gm_dtype dtype;
  /**
   * Number of dimensions.
   */
  size_t rank;
  /**
   * Sizes, outermost first.
   */
  const int64_t *shape;
  /**
   * Elements, row-major. Aligned to their type.
   */
  const void *data;
  /**
   * Bytes of all elements.
   */
  size_t bytes;
} gm_tensor;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of this library: major << 16 | minor << 8 | patch.
 */
uint32_t gm_version(void);

/**
 * The version as text, valid for ever.
 */
const char *gm_version_string(void);

/**
 * Opens a packed file, verifies it and checks that it runs on this processor. `options` may be null. `*model` is to be closed
 * with gm_model_close.
 *
 * The caller promises:
 * `path` ends with NUL. `options` is null or points to options whose `root` is null or has 32 bytes. `model` is writable.
 */
gm_status gm_model_open(const char *path,
                        const struct gm_open_options *options,
                        struct gm_model **model);

/**
 * Opens a packed file that lies in memory, without copying its weights. `data` is at a multiple of 8 and stays as it is
 * until the model and all its sessions are gone. `options` may be null.
 *
 * The caller promises:
 * `bytes` bytes from `data` are readable and do not change while the model or a session of it exists. `options` as for
 * gm_model_open. `model` is writable.
 */
gm_status gm_model_open_memory(const void *data,
                               size_t bytes,
                               const struct gm_open_options *options,
                               struct gm_model **model);

/**
 * Closes a model. Its sessions go on; what gm_model_input and gm_model_output gave is gone. Null is allowed and does nothing.
 *
 * The caller promises:
 * `model` is null or comes from gm_model_open or gm_model_open_memory, was not closed before, and no other thread uses it.
 */
void gm_model_close(struct gm_model *model);

/**
 * Number of inputs.
 *
 * The caller promises:
 * `model` is open; `count` is writable.
 */
gm_status gm_model_inputs(const struct gm_model *model, size_t *count);

/**
 * Number of outputs.
 *
 * The caller promises:
 * `model` is open; `count` is writable.
 */
gm_status gm_model_outputs(const struct gm_model *model, size_t *count);

/**
 * Describes an input. What `*info` points to is valid until the model is closed.
 *
 * The caller promises:
 * `model` is open; `info` is writable.
 */
gm_status gm_model_input(const struct gm_model *model, size_t index, struct gm_tensor_info *info);

/**
 * Describes an output. What `*info` points to is valid until the model is closed.
 *
 * The caller promises:
 * `model` is open; `info` is writable.
 */
gm_status gm_model_output(const struct gm_model *model, size_t index, struct gm_tensor_info *info);

/**
 * The number of the input with this name.
 *
 * The caller promises:
 * `model` is open; `name` ends with NUL; `index` is writable.
 */
gm_status gm_model_find_input(const struct gm_model *model, const char *name, size_t *index);

/**
 * The number of the output with this name.
 *
 * The caller promises:
 * `model` is open; `name` ends with NUL; `index` is writable.
 */
gm_status gm_model_find_output(const struct gm_model *model, const char *name, size_t *index);

/**
 * Bytes of arena that a session needs. Models with open dimensions may need more in a run, which then says how much.
 *
 * The caller promises:
 * `model` is open; `bytes` is writable.
 */
gm_status gm_model_arena_bytes(const struct gm_model *model,
                               size_t *bytes);

/**
 * The root digest, which covers every byte of the file: 32 bytes to `root`.
 *
 * The caller promises:
 * `model` is open; 32 bytes at `root` are writable.
 */
gm_status gm_model_root(const struct gm_model *model, uint8_t *root);

/**
 * Makes a session. `options` may be null: an arena of the session's own, one thread. `*session` is to be freed with
 * gm_session_free.
 *
 * The caller promises:
 * `model` is open. `options` is null or readable; its arena, if there is one, has `arena_bytes` writable bytes that nobody else
 * uses until the session is freed. `session` is writable.
 */
gm_status gm_session_new(const struct gm_model *model,
                         const struct gm_session_options *options,
                         struct gm_session **session);

/**
 * Frees a session; its outputs are gone, lent memory is the caller's again. Null is allowed and does nothing.
 *
 * The caller promises:
 * `session` is null or comes from gm_session_new, was not freed before, and no other thread uses it.
 */
void gm_session_free(struct gm_session *session);

/**
 * Sets an input: elements of type `dtype` (a gm_dtype), row-major, little-endian, `bytes` in all, aligned to their type. The
 * data is not copied: it must stay until the end of the last run that shall use it. `shape` is copied. Whether they are what
 * the model declares is found by the run. `shape` may be null if `rank` is 0, `data` if `bytes` is 0. Elements of type
 * GM_DTYPE_BOOL must be 0 or 1.
 *
 * The caller promises:
 * `session` was not freed. `rank` sizes at `shape` are readable. `bytes` bytes at `data` are readable and do not change in any
 * run until the input is set anew.
 */
gm_status gm_session_set_input(struct gm_session *session,
                               size_t index,
                               uint32_t dtype,
                               const int64_t *shape,
                               size_t rank,
                               const void *data,
                               size_t bytes);

/**
 * Runs the model on the inputs that are set. Inputs stay set for the next run. Outputs of an earlier run are gone, even if this
 * one fails.
 *
 * The caller promises:
 * `session` was not freed; the data of all inputs is still there.
 */
gm_status gm_session_run(struct gm_session *session);

/**
 * Bytes of arena that the last run asked for which failed with GM_STATUS_ARENA_TOO_SMALL; 0 if none did.
 *
 * The caller promises:
 * `session` was not freed; `bytes` is writable.
 */
gm_status gm_session_arena_needed(const struct gm_session *session,
                                  size_t *bytes);

/**
 * An output of the last run. What `*output` points to is valid until the session's next run or its end.
 *
 * The caller promises:
 * `session` was not freed; `output` is writable.
 */
gm_status gm_session_output(const struct gm_session *session,
                            size_t index,
                            struct gm_tensor *output);

/**
 * A sentence for a status, without details. Never null, valid for ever, for unknown numbers too.
 */
const char *gm_error_message(int32_t status);

/**
 * The details of the last failure on the calling thread, or an empty text. Never null; valid until the thread's next call
 * that fails, or its end.
 */
const char *gm_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GRAPHMEND_H */
