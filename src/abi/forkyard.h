/*
 * forkyard.h: the worker contract as a C ABI.
 *
 * A runtime that is not written in Rust serves requests through this table of functions. The worker loop calls the
 * runtime once per request with a forkyard_request, which is borrowed: it is valid until the runtime returns. All
 * functions are to be called from the thread that the request was given to. Text is NUL-terminated one byte past its
 * length, so it can be used as a C string where it holds no NUL itself.
 *
 * Dual-licensed MIT or Apache-2.0, as all of forkyard.
 */
#ifndef FORKYARD_H
#define FORKYARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a function is added at the end; anything else is a new forkyard_api_vN. */
#define FORKYARD_API_VERSION 2

typedef struct forkyard_request forkyard_request;

struct forkyard_text {
    const char *data;
    size_t length;
};

/* Stages that a runtime may set; the worker loop sets the others. */
enum forkyard_stage {
    FORKYARD_STAGE_INFO = 4,
    FORKYARD_STAGE_EXECUTING = 5,
    FORKYARD_STAGE_END = 6
};

/* What the scoreboard shows of a request; empty texts are shown as "-". */
struct forkyard_description {
    struct forkyard_text method;
    struct forkyard_text uri;
    struct forkyard_text query;
    struct forkyard_text script;
    struct forkyard_text user;
    uint64_t content_length; /* bytes */
};

struct forkyard_api {
    uint32_t version; /* FORKYARD_API_VERSION of the library */
    uint32_t size;    /* sizeof(struct forkyard_api) of the library, bytes */

    /* The request's parameters, in the order in which they came. */
    size_t (*param_count)(const forkyard_request *request);
    /* 1, or 0 when there is no such index. */
    int (*param_at)(const forkyard_request *request, size_t index, struct forkyard_text *name,
                    struct forkyard_text *value);
    /* 1, or 0 when there is no such parameter. */
    int (*param)(const forkyard_request *request, const char *name, size_t name_length,
                 struct forkyard_text *value);

    /* The next bytes of the body: how many, 0 at its end, -1 when the client is gone or silent for too long. */
    ptrdiff_t (*read_body)(forkyard_request *request, void *buffer, size_t length);
    /* Output (the CGI response: headers, empty line, body). length, or -1 when the client is gone. */
    ptrdiff_t (*write)(forkyard_request *request, const void *bytes, size_t length);
    /* Text for the web server's error log. length, or -1 when the client is gone. */
    ptrdiff_t (*write_error)(forkyard_request *request, const void *bytes, size_t length);
    /* Send what is buffered. 0, or -1 when the client is gone. */
    int (*flush)(forkyard_request *request);
    /* End the answer now; the runtime may go on working. 0, or -1 when the client is gone. Done by the worker loop
     * where the runtime has not. */
    int (*finish)(forkyard_request *request);
    /* 1 once the answer has ended, else 0. */
    int (*is_finished)(const forkyard_request *request);

    void (*set_stage)(forkyard_request *request, uint32_t stage);
    void (*describe)(forkyard_request *request, const struct forkyard_description *description);
    /* Peak memory of the request, bytes, for the scoreboard. */
    void (*set_memory)(forkyard_request *request, uint64_t bytes);

    /* Since version 2. As finish, for a runtime that is about to return: the connection stays with the worker. */
    int (*end)(forkyard_request *request);
};

/* The table; never NULL, valid for the life of the process. */
const struct forkyard_api *forkyard_api_v1(void);

#ifdef __cplusplus
}
#endif

#endif
